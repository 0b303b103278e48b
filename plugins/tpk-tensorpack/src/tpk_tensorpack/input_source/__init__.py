"""tensorpack's `input_source`: feed data into the graph."""

from __future__ import annotations

from tpk_tensorpack.input_source import input_source, input_source_base
from tpk_tensorpack.input_source.input_source import *
from tpk_tensorpack.input_source.input_source_base import *

__all__ = [*input_source.__all__, *input_source_base.__all__]
