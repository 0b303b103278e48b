"""tensorpack's `callbacks`."""

from __future__ import annotations

from tpk_tensorpack.callbacks.base import *
from tpk_tensorpack.callbacks.concurrency import *
from tpk_tensorpack.callbacks.graph import *
from tpk_tensorpack.callbacks.group import *
from tpk_tensorpack.callbacks.hooks import *
from tpk_tensorpack.callbacks.inference import *
from tpk_tensorpack.callbacks.inference_runner import *
from tpk_tensorpack.callbacks.misc import *
from tpk_tensorpack.callbacks.monitor import *
from tpk_tensorpack.callbacks.param import *
from tpk_tensorpack.callbacks.prof import *
from tpk_tensorpack.callbacks.saver import *
from tpk_tensorpack.callbacks.steps import *
from tpk_tensorpack.callbacks.summary import *
from tpk_tensorpack.callbacks.trigger import *

# The classes and functions, without the modules that define them.
__all__ = [name for name, value in sorted(vars().items()) if callable(value)]
