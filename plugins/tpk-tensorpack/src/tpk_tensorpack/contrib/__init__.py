"""tensorpack's `contrib`: Keras models."""
