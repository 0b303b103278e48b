"""``tpk launch``: a training of several processes on this host."""
