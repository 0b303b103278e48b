"""tensorpack's `tfutils`: what knows TensorFlow."""
