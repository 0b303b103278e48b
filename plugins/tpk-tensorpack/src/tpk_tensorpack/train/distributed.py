"""Distributed trainers under their names in tensorpack 0.5 and 0.6."""

from __future__ import annotations

from tpk_tensorpack.train.trainers import DistributedTrainerReplicated

__all__ = ["DistributedReplicatedTrainer"]

DistributedReplicatedTrainer = DistributedTrainerReplicated
