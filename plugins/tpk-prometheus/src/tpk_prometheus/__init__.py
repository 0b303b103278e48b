"""Monitor tpk training runs with Prometheus."""

from __future__ import annotations

from tpk_prometheus.monitor import PrometheusMonitor

__all__ = ["PrometheusMonitor"]
