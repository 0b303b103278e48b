"""``tpk plugins``."""
