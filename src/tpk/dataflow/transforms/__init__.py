"""What is done to the datapoints of one flow on the way: each for itself, several at once, or their order."""
