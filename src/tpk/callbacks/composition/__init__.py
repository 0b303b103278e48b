"""What makes callbacks of callbacks, and of TensorFlow's hooks."""
