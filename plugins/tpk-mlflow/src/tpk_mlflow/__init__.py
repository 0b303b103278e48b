"""Record tpk training runs with MLflow."""

from __future__ import annotations

from tpk_mlflow.monitor import MLflowMonitor

__all__ = ["MLflowMonitor"]
