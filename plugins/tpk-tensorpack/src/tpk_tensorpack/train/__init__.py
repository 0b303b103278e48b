"""tensorpack's `train`: models, configurations and trainers."""

from __future__ import annotations

from tpk_tensorpack.train.base import StopTraining, Trainer
from tpk_tensorpack.train.config import DEFAULT_CALLBACKS, DEFAULT_MONITORS, AutoResumeTrainConfig, TrainConfig
from tpk_tensorpack.train.interface import launch_train_with_config
from tpk_tensorpack.train.model_desc import ModelDesc, ModelDescBase
from tpk_tensorpack.train.tower import SingleCostTrainer, TowerTrainer
from tpk_tensorpack.train.trainers import (
    AsyncMultiGPUTrainer,
    BytePSTrainer,
    DistributedTrainerParameterServer,
    DistributedTrainerReplicated,
    HorovodTrainer,
    NoOpTrainer,
    QueueInputTrainer,
    SimpleTrainer,
    SyncMultiGPUTrainer,
    SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated,
)

__all__ = [
    "DEFAULT_CALLBACKS",
    "DEFAULT_MONITORS",
    "AsyncMultiGPUTrainer",
    "AutoResumeTrainConfig",
    "BytePSTrainer",
    "DistributedTrainerParameterServer",
    "DistributedTrainerReplicated",
    "HorovodTrainer",
    "ModelDesc",
    "ModelDescBase",
    "NoOpTrainer",
    "QueueInputTrainer",
    "SimpleTrainer",
    "SingleCostTrainer",
    "StopTraining",
    "SyncMultiGPUTrainer",
    "SyncMultiGPUTrainerParameterServer",
    "SyncMultiGPUTrainerReplicated",
    "TowerTrainer",
    "TrainConfig",
    "Trainer",
    "launch_train_with_config",
]
