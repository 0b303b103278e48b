"""The processes of a training: who they are, whether they live, and what they tell each other."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
