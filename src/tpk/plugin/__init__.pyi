from .callback import (
    HOOK_NAMES as HOOK_NAMES,
    Callback as Callback,
    Plugin as Plugin,
)
from .catalog import Catalog as Catalog, get_catalog as get_catalog, use_catalog as use_catalog
from .creation import (
    Use as Use,
    also_spelled as also_spelled,
    use as use,
)
from .hookspecs import hookimpl as hookimpl, hookspec as hookspec
from .implementations import order_of as order_of
from .manager import HookManager as HookManager
from .progress import Progress as Progress
from .run_settings import RunSettings as RunSettings
from .step import StepHooks as StepHooks
