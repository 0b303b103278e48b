"""How one step is replicated over devices and processes; one file a strategy."""

from __future__ import annotations

from tpk.strategies.asynchronous import AsyncStrategy
from tpk.strategies.base import Strategy
from tpk.strategies.cluster import Cluster
from tpk.strategies.collective import CollectiveStrategy
from tpk.strategies.device_setter import LeastLoadedDeviceSetter
from tpk.strategies.distributed_parameter_server import DistributedParameterServerStrategy
from tpk.strategies.distributed_replicated import DistributedReplicatedStrategy
from tpk.strategies.exchange import Alone, Exchange
from tpk.strategies.multi_process import MultiProcessStrategy
from tpk.strategies.parameter_server import ParameterServerStrategy
from tpk.strategies.replicated import ReplicatedStrategy, get_post_init_ops
from tpk.strategies.single import SingleStrategy
from tpk.strategies.towers import build_on_multi_tower

__all__ = [
    "Alone",
    "AsyncStrategy",
    "Cluster",
    "CollectiveStrategy",
    "DistributedParameterServerStrategy",
    "DistributedReplicatedStrategy",
    "Exchange",
    "LeastLoadedDeviceSetter",
    "MultiProcessStrategy",
    "ParameterServerStrategy",
    "ReplicatedStrategy",
    "SingleStrategy",
    "Strategy",
    "build_on_multi_tower",
    "get_post_init_ops",
]
