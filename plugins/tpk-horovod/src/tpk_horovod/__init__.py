"""Strategy of many processes on Horovod, which ``python -m tpk_horovod.build`` builds for the TensorFlow there is."""

from __future__ import annotations
