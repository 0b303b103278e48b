from __future__ import annotations

import os
import signal

# Tests want TensorFlow's errors, not its greetings. It reads these when it is first imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

# A shell ignores SIGINT in what it starts in the background, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
