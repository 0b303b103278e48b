from .spec import Cluster as Cluster
from .timeouts import Timeouts as Timeouts
