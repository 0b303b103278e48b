from .strategy import HorovodStrategy as HorovodStrategy
from .trainer import HorovodTrainer as HorovodTrainer
