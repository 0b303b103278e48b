"""tensorpack's `predict`: trained models as functions of arrays."""

from __future__ import annotations

from tpk_tensorpack.predict import base, concurrency, config, dataset, feedfree, multigpu
from tpk_tensorpack.predict.base import *
from tpk_tensorpack.predict.concurrency import *
from tpk_tensorpack.predict.config import *
from tpk_tensorpack.predict.dataset import *
from tpk_tensorpack.predict.feedfree import *
from tpk_tensorpack.predict.multigpu import *

__all__ = [*base.__all__, *concurrency.__all__, *config.__all__, *dataset.__all__, *feedfree.__all__, *multigpu.__all__]
