"""tensorpack's `callbacks`."""

from __future__ import annotations

from tpk_tensorpack.callbacks import (
    base,
    concurrency,
    graph,
    group,
    hooks,
    inference,
    inference_runner,
    misc,
    monitor,
    param,
    prof,
    saver,
    steps,
    summary,
    trigger,
)
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

__all__ = [
    *base.__all__,
    *concurrency.__all__,
    *graph.__all__,
    *group.__all__,
    *hooks.__all__,
    *inference.__all__,
    *inference_runner.__all__,
    *misc.__all__,
    *monitor.__all__,
    *param.__all__,
    *prof.__all__,
    *saver.__all__,
    *steps.__all__,
    *summary.__all__,
    *trigger.__all__,
]
