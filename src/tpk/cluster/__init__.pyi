from .spec import Cluster as Cluster
