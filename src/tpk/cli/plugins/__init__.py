"""``tpk plugins``: list, show, check and create plugins."""
