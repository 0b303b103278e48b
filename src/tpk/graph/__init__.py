"""TensorFlow helpers that do not depend on training: variables, collections, gradients, optimizers, summaries."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__.remove("random")  # `from tpk import *` must not replace the standard module.
