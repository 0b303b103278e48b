"""Datapoints in LMDB files, and what other file formats of datapoints need."""

from tpk_lmdb.packer import DatapointPacker
from tpk_lmdb.serializer import LMDBFile, LMDBSerializer, commit, datapoints_with_progress, written_atomically

__all__ = ["DatapointPacker", "LMDBFile", "LMDBSerializer", "commit", "datapoints_with_progress", "written_atomically"]
