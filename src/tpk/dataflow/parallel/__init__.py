"""Dataflows in other processes and threads."""

from tpk.dataflow.parallel.map import MultiProcessMapData
from tpk.dataflow.parallel.runner import MultiProcessRunner
from tpk.dataflow.parallel.thread_map import MultiThreadMapData
from tpk.dataflow.parallel.threads import MultiThreadRunner

__all__ = ["MultiProcessMapData", "MultiProcessRunner", "MultiThreadMapData", "MultiThreadRunner"]
