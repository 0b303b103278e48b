"""Modules as scripts for TensorFlow 1 knew them: a script that imports ``numpy`` gets ``older.numpy``.

All other modules get the real ones.
"""
