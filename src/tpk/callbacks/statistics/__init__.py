"""Statistics, speed and progress of a training run."""
