"""Files that describe a run, so that ``tpk train`` can start it: how they are read, overridden, and written."""
