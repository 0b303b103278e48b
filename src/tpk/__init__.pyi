"""What type checkers see of `tpk`: all that its rooms hand on."""

from tpk import (
    callbacks as callbacks,
    checkpoint as checkpoint,
    dataflow as dataflow,
    errors as errors,
    graph as graph,
    input_source as input_source,
    layers as layers,
    monitors as monitors,
    plugin as plugin,
    predict as predict,
    session as session,
    strategies as strategies,
    tower as tower,
    train as train,
)
from tpk.callbacks import *
from tpk.checkpoint import *
from tpk.dataflow import *
from tpk.errors import *
from tpk.graph import *
from tpk.input_source import *
from tpk.monitors import *
from tpk.plugin import *
from tpk.predict import *
from tpk.session import *
from tpk.strategies import *
from tpk.tower import *
from tpk.train import *

__version__: str
