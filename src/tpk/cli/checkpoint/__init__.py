"""``tpk checkpoint``: which checkpoints there are, what is in them, and how two of them differ."""
