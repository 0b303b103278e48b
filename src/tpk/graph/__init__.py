"""TensorFlow helpers that know nothing of training: collections, the global step, summaries, variables."""

from __future__ import annotations

from tpk.graph.collections import freeze_collection
from tpk.graph.global_step import get_global_step_var
from tpk.graph.variables import assign_values, saveable_variables, variable_name

__all__ = [
    "assign_values",
    "freeze_collection",
    "get_global_step_var",
    "saveable_variables",
    "variable_name",
]
