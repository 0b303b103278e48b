"""Packages of TensorFlow 1 around its tutorials."""
