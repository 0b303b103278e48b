"""OpenCV, an optional library that is imported on first use."""

from __future__ import annotations

from typing import Any

from tpk_tensorpack.missing import optional_library

__all__ = ["cv2"]


class _OpenCV:
    """A lazy replacement for the module `cv2`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(optional_library("cv2", f"cv2.{name}"), name)


cv2: Any = _OpenCV()

# OpenCV's constants, for defaults and tables without importing OpenCV.
BGR2GRAY, RGB2GRAY = 6, 7
BGR2HSV, RGB2HSV = 40, 41
HSV2BGR, HSV2RGB = 54, 55
