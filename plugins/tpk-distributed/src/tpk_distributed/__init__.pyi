from .spec import (
    Cluster as Cluster,
    Timeouts as Timeouts,
    as_cluster as as_cluster,
    as_timeouts as as_timeouts,
)
