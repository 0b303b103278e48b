"""Training in several workers whose variables are on parameter servers."""
