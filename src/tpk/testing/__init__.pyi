from .callback_rules import check_callback as check_callback
from .conformance import ConformanceError as ConformanceError
from .fixtures import (
    HookRecorder as HookRecorder,
    fake_distribution as fake_distribution,
    hook_recorder as hook_recorder,
    isolated_catalog as isolated_catalog,
    run_steps as run_steps,
)
from .monitor_rules import check_monitor as check_monitor
from .strategy_rules import check_strategy as check_strategy
from .trainer_rules import check_trainer as check_trainer
