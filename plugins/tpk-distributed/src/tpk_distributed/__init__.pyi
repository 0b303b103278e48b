from .cluster import Cluster as Cluster, as_cluster as as_cluster
from .collective.collective_strategy import CollectiveStrategy as CollectiveStrategy
from .distributed_trainers import (
    CollectiveTrainer as CollectiveTrainer,
    DistributedParameterServerTrainer as DistributedParameterServerTrainer,
    DistributedReplicatedTrainer as DistributedReplicatedTrainer,
)
from .parameter_servers.distributed_parameter_server import (
    DistributedParameterServerStrategy as DistributedParameterServerStrategy,
)
from .parameter_servers.distributed_replicated import DistributedReplicatedStrategy as DistributedReplicatedStrategy
from .timeouts import Timeouts as Timeouts, as_timeouts as as_timeouts
