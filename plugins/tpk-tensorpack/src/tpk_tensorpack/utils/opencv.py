"""OpenCV, imported when it is used for the first time: it is an optional library."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["cv2"]


class _OpenCV:
    """Stands for the module `cv2`: its functions and constants, by its names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            found = getattr(importlib.import_module("cv2"), name)
        except ImportError as error:
            raise ImportError(
                f"cv2.{name} is used, but there is no OpenCV: pip install 'tpk-tensorpack[images]'"
            ) from error
        setattr(self, name, found)  # Next time it is an attribute like any other.
        return found


cv2: Any = _OpenCV()

# OpenCV's codes, as defaults and tables have them without OpenCV.
BGR2GRAY, RGB2GRAY = 6, 7
BGR2HSV, RGB2HSV = 40, 41
HSV2BGR, HSV2RGB = 54, 55
