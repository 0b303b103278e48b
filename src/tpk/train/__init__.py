"""The core loop, the trainers, and how a run is described and launched."""

from __future__ import annotations

from tpk.train.config import TrainConfig
from tpk.train.launch import launch_train_with_config
from tpk.train.model_desc import ModelDesc
from tpk.train.multi_objective import MultiObjectiveTrainer
from tpk.train.tower_trainer import SingleCostTrainer, TowerTrainer
from tpk.train.trainer import Trainer
from tpk.train.trainers import (
    AsyncMultiGPUTrainer,
    CollectiveTrainer,
    DistributedParameterServerTrainer,
    DistributedReplicatedTrainer,
    QueueInputTrainer,
    SimpleTrainer,
    SyncMultiGPUTrainer,
    SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated,
)

__all__ = [
    "AsyncMultiGPUTrainer",
    "CollectiveTrainer",
    "DistributedParameterServerTrainer",
    "DistributedReplicatedTrainer",
    "ModelDesc",
    "MultiObjectiveTrainer",
    "QueueInputTrainer",
    "SimpleTrainer",
    "SingleCostTrainer",
    "SyncMultiGPUTrainer",
    "SyncMultiGPUTrainerParameterServer",
    "SyncMultiGPUTrainerReplicated",
    "TowerTrainer",
    "TrainConfig",
    "Trainer",
    "launch_train_with_config",
]
