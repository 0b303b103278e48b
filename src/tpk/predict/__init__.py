"""What computes outputs of a model from arrays."""

from __future__ import annotations

from tpk.predict.online import OnlinePredictor

__all__ = ["OnlinePredictor"]
