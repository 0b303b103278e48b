from .context import (
    PredictTowerContext as PredictTowerContext,
    TowerContext as TowerContext,
    TrainTowerContext as TrainTowerContext,
    get_current_tower_context as get_current_tower_context,
)
from .handle import (
    TowerHandle as TowerHandle,
    TowerHandles as TowerHandles,
)
from .tower_func import TowerFunc as TowerFunc
