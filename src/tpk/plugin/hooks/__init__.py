"""Implementations of hooks: which ones a plugin has, whether they fit, and how they are called."""
