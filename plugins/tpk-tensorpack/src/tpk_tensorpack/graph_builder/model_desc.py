"""The former module of model classes, which are now in `train`."""

from __future__ import annotations

from tpk_tensorpack.train.model_desc import ModelDesc as ModelDesc, ModelDescBase as ModelDescBase
from tpk_tensorpack.train.older import InputDesc as InputDesc

__all__: list[str] = []
