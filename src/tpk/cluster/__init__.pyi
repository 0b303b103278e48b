from .spec import Cluster as Cluster, Timeouts as Timeouts
