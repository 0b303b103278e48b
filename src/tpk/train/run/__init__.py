"""The directory of a run: its lock, and the files that describe the run."""
