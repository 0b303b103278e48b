"""tensorpack's `train`: models, configurations and trainers."""

from __future__ import annotations

from tpk_tensorpack.train import base, config, interface, model_desc, tower, trainers
from tpk_tensorpack.train.base import *
from tpk_tensorpack.train.config import *
from tpk_tensorpack.train.interface import *
from tpk_tensorpack.train.model_desc import *
from tpk_tensorpack.train.tower import *
from tpk_tensorpack.train.trainers import *

__all__ = [*base.__all__, *config.__all__, *interface.__all__, *model_desc.__all__, *tower.__all__, *trainers.__all__]
