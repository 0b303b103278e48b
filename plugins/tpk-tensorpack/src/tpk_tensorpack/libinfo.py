"""The tensorpack version that this package reports, for scripts that compare or print it."""

from __future__ import annotations

__version__ = "0.11"
__git_version__ = "v0.11"
