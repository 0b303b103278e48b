"""Several processes: bases of the strategies that have them, and how they tell each other things."""
