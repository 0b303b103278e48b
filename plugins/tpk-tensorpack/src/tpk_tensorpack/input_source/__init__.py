"""tensorpack's `input_source`: feed data into the graph."""

from __future__ import annotations

from tpk_tensorpack.input_source.input_source import *
from tpk_tensorpack.input_source.input_source_base import *

# The classes and functions, without the modules that define them.
__all__ = [name for name, value in sorted(vars().items()) if callable(value)]
