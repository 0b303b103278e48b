"""The built-in callbacks: what happens besides the training itself. One file a topic."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
