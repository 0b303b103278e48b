"""Hyperparameters: what sets them while a training runs, and what reports them."""
