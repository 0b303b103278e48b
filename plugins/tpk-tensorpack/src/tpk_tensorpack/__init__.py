"""tensorpack's names, on tpk."""
