"""Evaluation: runners of the model over other data, and what they compute of its outputs."""
