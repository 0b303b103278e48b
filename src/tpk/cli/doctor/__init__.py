"""``tpk doctor``: what is installed here, and what of it does not work."""
