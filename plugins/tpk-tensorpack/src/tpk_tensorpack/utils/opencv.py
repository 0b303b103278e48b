"""OpenCV, an optional library that is imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["cv2"]


class _OpenCV:
    """A lazy replacement for the module `cv2`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            found = getattr(importlib.import_module("cv2"), name)
        except ImportError as error:
            raise ImportError(
                f"cv2.{name} needs OpenCV, which is not installed: pip install 'tpk-tensorpack[images]'"
            ) from error
        setattr(self, name, found)  # a plain attribute from now on
        return found


cv2: Any = _OpenCV()

# OpenCV's constants, for defaults and tables without importing OpenCV.
BGR2GRAY, RGB2GRAY = 6, 7
BGR2HSV, RGB2HSV = 40, 41
HSV2BGR, HSV2RGB = 54, 55
