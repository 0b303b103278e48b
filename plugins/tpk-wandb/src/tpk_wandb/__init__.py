"""Record tpk training runs with Weights & Biases."""

from __future__ import annotations

from tpk_wandb.monitor import WandbMonitor

__all__ = ["WandbMonitor"]
