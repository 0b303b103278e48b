"""Keras models and layers in towers, of every version of Keras."""
