"""tensorpack's `dataflow.dataset`: readers of published data sets.

Nothing is downloaded: if files are missing, the error says where to get them and where to put them. By default they
are below `tpk_tensorpack.utils.fs.get_dataset_path`, which the environment variable ``TENSORPACK_DATASET`` sets.
"""

from __future__ import annotations

from tpk_tensorpack.dataflow.base import RNGDataFlow as RNGDataFlow
from tpk_tensorpack.dataflow.dataset.bsds500 import *
from tpk_tensorpack.dataflow.dataset.caltech101 import *
from tpk_tensorpack.dataflow.dataset.cifar import *
from tpk_tensorpack.dataflow.dataset.ilsvrc import *
from tpk_tensorpack.dataflow.dataset.mnist import *
from tpk_tensorpack.dataflow.dataset.places import *
from tpk_tensorpack.dataflow.dataset.svhn import *

# The classes and functions, without the modules that define them.
__all__ = [name for name, value in sorted(vars().items()) if callable(value)]
