"""Dataflows in LMDB files."""
