"""How a training goes on: when its checkpoints are made, what they hold, and how it takes that back."""
