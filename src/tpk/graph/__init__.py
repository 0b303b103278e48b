"""TensorFlow helpers that do not depend on training: variables, collections, gradients, optimizers, summaries."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
