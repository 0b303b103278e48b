"""`tf.contrib.tensorboard`: the plugins of TensorBoard, for ``tf.contrib.tensorboard.plugins.projector``."""

from __future__ import annotations

import tensorboard.plugins.projector  # noqa: F401 (it becomes an attribute of `plugins`)
from tensorboard import plugins as plugins
