"""``tpk runs``, ``tpk show`` and ``tpk plot``: what runs have left in their directories."""
