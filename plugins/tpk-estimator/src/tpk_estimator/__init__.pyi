from . import export as export, inputs as inputs
from .run_config import RunConfig as RunConfig
from .spec import EstimatorSpec as EstimatorSpec, ModeKeys as ModeKeys
