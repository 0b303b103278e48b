"""tensorpack's `utils`: tools for scripts, unrelated to training."""

from __future__ import annotations

from tpk_tensorpack.utils import logger, utils
from tpk_tensorpack.utils.utils import *

__all__ = ["logger", *utils.__all__]
