from .callbacks import check_callback as check_callback
from .fixtures import (
    HookRecorder as HookRecorder,
    fake_distribution as fake_distribution,
    hook_recorder as hook_recorder,
    isolated_catalog as isolated_catalog,
    run_steps as run_steps,
)
from .monitors import check_monitor as check_monitor
from .rules import ConformanceError as ConformanceError
from .strategies import check_strategy as check_strategy
from .trainers import check_trainer as check_trainer
