"""What the tutorials about MNIST import."""
