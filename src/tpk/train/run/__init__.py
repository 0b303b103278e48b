"""The directory of a run: its name, its lock, and what is written there of the run as a whole."""
