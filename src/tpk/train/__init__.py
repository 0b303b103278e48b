"""The core loop, the trainers, and how a run is described and launched."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
