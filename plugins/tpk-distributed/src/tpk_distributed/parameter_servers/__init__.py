"""Training with several workers whose variables are on parameter servers."""
