"""tensorpack's `train`: models, configurations and trainers."""

from __future__ import annotations

from tpk_tensorpack.graph_builder.utils import LeastLoadedDeviceSetter
from tpk_tensorpack.train.base import *
from tpk_tensorpack.train.config import *
from tpk_tensorpack.train.distributed import *
from tpk_tensorpack.train.feedfree import *
from tpk_tensorpack.train.interface import *
from tpk_tensorpack.train.model_desc import *
from tpk_tensorpack.train.multigpu import *
from tpk_tensorpack.train.tower import *
from tpk_tensorpack.train.trainers import *

# The classes and functions, without the modules that define them.
__all__ = [name for name, value in sorted(vars().items()) if callable(value)]
