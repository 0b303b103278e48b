"""What saves the model."""
