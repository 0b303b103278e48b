"""Optimizers around optimizers: each does something to gradients, updates or weights, and passes the rest on."""
