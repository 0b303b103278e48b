"""Training in several processes by TensorFlow's collective ops."""
