from .base import RNNCell as RNNCell
from .composition import (
    DeviceWrapper as DeviceWrapper,
    MultiRNNCell as MultiRNNCell,
    ResidualWrapper as ResidualWrapper,
)
from .dropout import DropoutWrapper as DropoutWrapper
from .lstm import (
    BasicLSTMCell as BasicLSTMCell,
    LSTMCell as LSTMCell,
    LSTMStateTuple as LSTMStateTuple,
)
from .recurrent import (
    BasicRNNCell as BasicRNNCell,
    GRUCell as GRUCell,
)
