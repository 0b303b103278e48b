"""A predictor with data from an input source."""

from __future__ import annotations

from tpk.predict import FeedfreePredictor

__all__ = ["FeedfreePredictor"]
