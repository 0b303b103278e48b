"""Resuming: when checkpoints are taken, what they contain, and how a training is restored from one."""
