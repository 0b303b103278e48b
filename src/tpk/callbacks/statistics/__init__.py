"""What a training reports of itself: statistics, rates, progress."""
