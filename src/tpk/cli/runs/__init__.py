"""``tpk runs``, ``tpk show``, ``tpk plot`` and ``tpk board``: what runs have left in their directories."""
