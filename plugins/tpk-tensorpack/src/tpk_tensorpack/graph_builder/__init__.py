"""tensorpack's `graph_builder`: towers, gradients and the placement of variables."""

from __future__ import annotations

from tpk_tensorpack.graph_builder.model_desc import ModelDesc as ModelDesc, ModelDescBase as ModelDescBase
from tpk_tensorpack.graph_builder.training import DataParallelBuilder
from tpk_tensorpack.graph_builder.utils import LeastLoadedDeviceSetter, allreduce_grads

__all__ = ["DataParallelBuilder", "LeastLoadedDeviceSetter", "allreduce_grads"]
