from . import rnn_cell as rnn_cell
from .activations import (
    maxout as maxout,
    prelu as prelu,
)
from .batch_norm_layer import batch_normalization as batch_normalization
from .convolution import (
    conv1d as conv1d,
    conv1d_transpose as conv1d_transpose,
    conv2d as conv2d,
    conv2d_transpose as conv2d_transpose,
    conv3d as conv3d,
    conv3d_transpose as conv3d_transpose,
)
from .core import (
    dense as dense,
    dropout as dropout,
    flatten as flatten,
)
from .example_normalization import (
    group_normalization as group_normalization,
    instance_normalization as instance_normalization,
    layer_normalization as layer_normalization,
)
from .pooling import (
    average_pooling1d as average_pooling1d,
    average_pooling2d as average_pooling2d,
    average_pooling3d as average_pooling3d,
    global_average_pooling as global_average_pooling,
    global_max_pooling as global_max_pooling,
    max_pooling1d as max_pooling1d,
    max_pooling2d as max_pooling2d,
    max_pooling3d as max_pooling3d,
)
from .separable_convolution import (
    depthwise_conv2d as depthwise_conv2d,
    separable_conv1d as separable_conv1d,
    separable_conv2d as separable_conv2d,
)
