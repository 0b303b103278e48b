"""Callbacks that watch over a training: they stop it, skip a bad update, or recover."""
