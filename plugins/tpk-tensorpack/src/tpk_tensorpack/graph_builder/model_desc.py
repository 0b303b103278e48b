"""Models as classes, where they were before they were part of `train`."""

from __future__ import annotations

from tpk_tensorpack.train.model_desc import ModelDesc as ModelDesc, ModelDescBase as ModelDescBase

__all__: list[str] = []
