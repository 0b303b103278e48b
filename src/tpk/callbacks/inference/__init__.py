"""Evaluation of the model on other data."""
