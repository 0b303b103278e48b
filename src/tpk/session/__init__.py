"""Sessions: what runs a graph, together with the hooks of a step.

The names are resolved when they are first used: some files of this room need no TensorFlow, and what uses only those
shall not wait for it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
