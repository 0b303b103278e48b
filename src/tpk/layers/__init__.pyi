from .convolution import (
    conv2d as conv2d,
    conv2d_transpose as conv2d_transpose,
    separable_conv2d as separable_conv2d,
)
from .core import (
    dense as dense,
    dropout as dropout,
    flatten as flatten,
)
from .normalization import (
    batch_normalization as batch_normalization,
    layer_norm as layer_norm,
)
from .pooling import (
    average_pooling2d as average_pooling2d,
    max_pooling2d as max_pooling2d,
)
