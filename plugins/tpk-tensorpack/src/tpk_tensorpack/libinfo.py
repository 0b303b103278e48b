"""The version of tensorpack whose names these are: what scripts compare and print."""

from __future__ import annotations

__version__ = "0.11"
__git_version__ = "v0.11"
