from .evaluation import evaluate as evaluate
from .launch import (
    launch_train_with_config as launch_train_with_config,
    make_trainer as make_trainer,
)
from .loop import TrainLoop as TrainLoop
from .model_desc import ModelDesc as ModelDesc
from .multi_objective import MultiObjectiveTrainer as MultiObjectiveTrainer
from .named_trainers import (
    AsyncMultiGPUTrainer as AsyncMultiGPUTrainer,
    NoOpTrainer as NoOpTrainer,
    QueueInputTrainer as QueueInputTrainer,
    SimpleTrainer as SimpleTrainer,
    SyncMultiGPUTrainer as SyncMultiGPUTrainer,
    SyncMultiGPUTrainerParameterServer as SyncMultiGPUTrainerParameterServer,
    SyncMultiGPUTrainerReplicated as SyncMultiGPUTrainerReplicated,
)
from .reproducibility import set_random_seed as set_random_seed
from .run_file.read import read_run_file as read_run_file
from .tower_trainer import (
    SingleCostTrainer as SingleCostTrainer,
    TowerTrainer as TowerTrainer,
)
from .train_config import TrainConfig as TrainConfig
from .trainer import Trainer as Trainer
