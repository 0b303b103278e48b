"""Train in many processes on Horovod: the strategy ``horovod``, and ``python -m tpk_horovod.build``, which builds it."""

from __future__ import annotations
