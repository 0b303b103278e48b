"""tensorpack's `models`: layers, chains of layers, and regularization."""

from __future__ import annotations

from tpk_tensorpack.models.batch_norm import *
from tpk_tensorpack.models.common import *
from tpk_tensorpack.models.conv2d import *
from tpk_tensorpack.models.fc import *
from tpk_tensorpack.models.layer_norm import *
from tpk_tensorpack.models.linearwrap import *
from tpk_tensorpack.models.nonlin import *
from tpk_tensorpack.models.pool import *
from tpk_tensorpack.models.regularize import *
from tpk_tensorpack.models.shapes import *

# The classes and functions, without the modules that define them.
__all__ = [name for name, value in sorted(vars().items()) if callable(value)]
