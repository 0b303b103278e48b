"""A multi-process strategy that uses Horovod; ``python -m tpk_horovod.build`` builds Horovod."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
