from __future__ import annotations

import os

# Show only TensorFlow's errors. TensorFlow reads these variables when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

pytest_plugins = ["tpk.testing"]
