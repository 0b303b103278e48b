"""tensorpack's `dataflow`: data in plain Python and NumPy."""

from __future__ import annotations

from tpk_tensorpack.dataflow import dataset, dftools, imgaug
from tpk_tensorpack.dataflow.base import *
from tpk_tensorpack.dataflow.common import *
from tpk_tensorpack.dataflow.format import *
from tpk_tensorpack.dataflow.image import *
from tpk_tensorpack.dataflow.parallel import *
from tpk_tensorpack.dataflow.parallel_map import *
from tpk_tensorpack.dataflow.raw import *
from tpk_tensorpack.dataflow.remote import *
from tpk_tensorpack.dataflow.serialize import *

# The classes and functions, without the modules that define them.
__all__ = ["dataset", "dftools", "imgaug", *(name for name, value in sorted(vars().items()) if callable(value))]
