"""The runner of TensorFlow 1 scripts: it replaces their imports and switches to the behavior of TensorFlow 1."""
