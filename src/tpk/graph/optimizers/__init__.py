"""Optimizers around optimizers: each does something to gradients, updates or weights, and hands the rest on."""
