"""Towers, replicates of a model: tower functions, the contexts of their calls, and handles of what they built."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
