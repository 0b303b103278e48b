from .callback import Callback as Callback, Plugin as Plugin
from .catalog import Catalog as Catalog, get_catalog as get_catalog, use_catalog as use_catalog
from .creation import Use as Use, use as use
from .implementations import order_of as order_of
from .manager import HookManager as HookManager
from .progress import Progress as Progress
from .spec import hookimpl as hookimpl, hookspec as hookspec
from .step import StepHooks as StepHooks
from .trainer import TowerTrainerProtocol as TowerTrainerProtocol, TrainerProtocol as TrainerProtocol
