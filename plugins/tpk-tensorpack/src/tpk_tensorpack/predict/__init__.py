"""tensorpack's `predict`: trained models as functions of arrays."""

from __future__ import annotations

from tpk_tensorpack.predict.base import *
from tpk_tensorpack.predict.concurrency import *
from tpk_tensorpack.predict.config import *
from tpk_tensorpack.predict.dataset import *
from tpk_tensorpack.predict.feedfree import *
from tpk_tensorpack.predict.multigpu import *

# The classes and functions, without the modules that define them.
__all__ = [name for name, value in sorted(vars().items()) if callable(value)]
