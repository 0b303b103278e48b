"""The processes of a training: their addresses, servers and connections, and which of them are alive."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
