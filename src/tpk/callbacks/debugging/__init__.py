"""What one finds mistakes with: a shell inside of a training, a training of two steps."""
