"""A multi-process strategy that uses Horovod; ``python -m tpk_horovod.build`` builds Horovod."""

from __future__ import annotations
