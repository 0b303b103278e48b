"""tensorpack's `dataflow`: data in plain Python and NumPy."""

from __future__ import annotations

from tpk_tensorpack.dataflow import (
    base,
    common,
    dataset,
    dftools,
    format,
    image,
    imgaug,
    parallel,
    parallel_map,
    raw,
    remote,
    serialize,
)
from tpk_tensorpack.dataflow.base import *
from tpk_tensorpack.dataflow.common import *
from tpk_tensorpack.dataflow.format import *
from tpk_tensorpack.dataflow.image import *
from tpk_tensorpack.dataflow.parallel import *
from tpk_tensorpack.dataflow.parallel_map import *
from tpk_tensorpack.dataflow.raw import *
from tpk_tensorpack.dataflow.remote import *
from tpk_tensorpack.dataflow.serialize import *

_MODULES = (base, common, format, image, parallel, parallel_map, raw, remote, serialize)

__all__ = ["dataset", "dftools", "imgaug", *(name for module in _MODULES for name in module.__all__)]
