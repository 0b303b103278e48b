"""Dataflows in other processes and threads."""
