"""tensorpack's `dataflow.dataset`: readers of published data sets.

Nothing is downloaded: if files are missing, the error says where to get them and where to put them. By default they
are below `tpk_tensorpack.utils.fs.get_dataset_path`, which the environment variable ``TENSORPACK_DATASET`` sets.
"""

from __future__ import annotations

from tpk_tensorpack.dataflow.base import RNGDataFlow
from tpk_tensorpack.dataflow.dataset.bsds500 import BSDS500
from tpk_tensorpack.dataflow.dataset.caltech101 import Caltech101Silhouettes
from tpk_tensorpack.dataflow.dataset.cifar import Cifar10, Cifar100, CifarBase
from tpk_tensorpack.dataflow.dataset.ilsvrc import ILSVRC12, ILSVRC12Files, ILSVRCMeta, TinyImageNet
from tpk_tensorpack.dataflow.dataset.mnist import FashionMnist, Mnist
from tpk_tensorpack.dataflow.dataset.places import Places365Standard
from tpk_tensorpack.dataflow.dataset.svhn import SVHNDigit

__all__ = [
    "BSDS500",
    "ILSVRC12",
    "Caltech101Silhouettes",
    "Cifar10",
    "Cifar100",
    "CifarBase",
    "FashionMnist",
    "ILSVRC12Files",
    "ILSVRCMeta",
    "Mnist",
    "Places365Standard",
    "RNGDataFlow",
    "SVHNDigit",
    "TinyImageNet",
]
