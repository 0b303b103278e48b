"""Checkpoints: the variables and the training state on disk, and what gives variables their values."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
