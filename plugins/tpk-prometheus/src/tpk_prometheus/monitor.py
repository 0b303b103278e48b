"""The monitor ``prometheus``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, start_http_server, write_to_textfile

import tpk
from tpk_prometheus.pushgateway import Pushgateway

logger = logging.getLogger(f"tpk.{__name__}")


class PrometheusMonitor(tpk.Monitor):
    """Exports the latest value of each scalar to Prometheus: over HTTP, in a file, or through a Pushgateway.

    The metrics are ``tpk_scalar``, with the scalar's name as its label ``name``, ``tpk_global_step`` and
    ``tpk_epoch_num``.

    When it runs: at each report. Threads serve and push the metrics, so reports never wait. It works with every
    strategy; only the chief reports.

    Args:
        port: the port to serve on during training; 0 picks a free one.
        address: the address to listen on. The default can only be reached from this machine.
        textfile: a file to write at the end of each epoch, for the textfile collector of the Prometheus node exporter,
            which requires the suffix ``.prom``. The file is replaced atomically.
        pushgateway: the URL of a Pushgateway, such as ``"http://gateway:9091"``, for training runs that Prometheus
            cannot scrape. The gateway keeps the last values after the run has ended. If it does not answer, training
            continues: the failure is logged once, and the push is retried.
        job: the job name in the Pushgateway; runs that push at the same time need different names.
        push_secs: the push interval in seconds. The metrics are also pushed when training ends.
        labels: labels for all metrics, such as ``{"run": "baseline"}``.

    Attributes:
        port: the actual port; known once training has started.
        registry: the `prometheus_client.CollectorRegistry` that holds the metrics.

    Raises:
        ConfigError: if none of `port`, `textfile` and `pushgateway` is given, a label is called ``name``, or the URL
            of the gateway is invalid; when training starts, if the port is in use.

    Example:
        ```python
        tpk.TrainConfig(..., extra_monitors=[tpk.use("prometheus", port=9400)])
        ```
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        address: str = "127.0.0.1",
        textfile: str | os.PathLike[str] | None = None,
        pushgateway: str | None = None,
        job: str = "tpk",
        push_secs: float = 15.0,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        if port is None and textfile is None and pushgateway is None:
            raise tpk.ConfigError(
                "prometheus has no destination for its metrics. Set at least one of port, textfile and pushgateway."
            )
        if "name" in (labels or {}):
            raise tpk.ConfigError(
                f"prometheus: the labels {labels} contain 'name', which is reserved for the scalar's name. Rename it."
            )
        self.port = port
        self.registry = CollectorRegistry()
        self._pushgateway = None if pushgateway is None else Pushgateway(pushgateway, job, push_secs, self.registry)
        self._address = address
        self._textfile = textfile
        self._labels = dict(labels or {})
        self._scalars = Gauge("tpk_scalar", "A scalar.", ["name", *self._labels], registry=self.registry)
        self._resources = ExitStack()

    def before_train(self, trainer: Any) -> None:
        """Start to serve and push."""
        self._add_gauge("tpk_global_step", "How many times the session was run.", lambda: trainer.global_step)
        self._add_gauge("tpk_epoch_num", "The current epoch.", lambda: trainer.epoch_num)
        if self.port is not None:
            self._serve(self.port)
        if self._pushgateway is not None:
            self._pushgateway.start()

    def process_scalar(self, name: str, value: int | float) -> None:
        """Update the metric of a scalar."""
        self._scalars.labels(name=name, **self._labels).set(value)

    def flush(self) -> None:
        """Write the text file, if one was requested."""
        if self._textfile is not None:
            # It writes a temporary file and renames it.
            write_to_textfile(os.fspath(self._textfile), self.registry)

    def after_train(self) -> None:
        """Stop serving, and push for the last time.

        Raises:
            OSError: if the last push fails.
        """
        self._resources.close()
        if self._pushgateway is not None:
            self._pushgateway.close()

    def _add_gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        gauge = Gauge(name, documentation, list(self._labels), registry=self.registry)
        (gauge.labels(**self._labels) if self._labels else gauge).set_function(read)

    def _serve(self, port: int) -> None:
        try:
            server, thread = start_http_server(port, self._address, self.registry)
        except OSError as error:
            raise tpk.ConfigError(f"prometheus cannot serve on {self._address}:{port}: {error}") from error
        # Callbacks run in reverse order.
        self._resources.callback(thread.join)
        self._resources.callback(server.server_close)
        self._resources.callback(server.shutdown)
        self.port = server.server_port
        logger.info("metrics for Prometheus are at http://%s:%d/metrics", self._address, self.port)
