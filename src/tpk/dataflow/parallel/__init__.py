"""Dataflows in worker processes and threads: ``*_map`` for a function, ``*_runner`` for a whole flow."""
