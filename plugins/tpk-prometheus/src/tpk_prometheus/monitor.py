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
    """Offers the latest value of each scalar to Prometheus: over HTTP, in a file, by a Pushgateway.

    The metrics are ``tpk_scalar``, with the scalar's name as its label ``name``, ``tpk_global_step`` and
    ``tpk_epoch_num``.

    When it runs: with each report; serving and pushing are done by threads, and no report waits for them. It works on
    every strategy; only the chief reports.

    Args:
        port: the port to serve on while the training runs; 0 takes a free one.
        address: the address to serve on. The default can be reached from this machine only.
        textfile: a file to write at the end of each epoch, for the textfile collector of Prometheus' node exporter,
            which wants it to end in ``.prom``. It is replaced as a whole, so no reader sees half of it.
        pushgateway: the address of a Pushgateway, such as ``"http://gateway:9091"``, for trainings that Prometheus does
            not find by themselves. What it was sent last stays there when the training has ended. One that does not
            answer stops nothing: the log says so once, and it is tried again.
        job: what the training is called there; each training that pushes at the same time needs another name.
        push_secs: how often to push, in seconds, besides the end of the training.
        labels: labels that all metrics get, such as ``{"run": "baseline"}``.

    Attributes:
        port: the port that is served on; known once the training has begun.
        registry: the `prometheus_client.CollectorRegistry` that holds the metrics.

    Raises:
        ConfigError: if none of `port`, `textfile` and `pushgateway` is given, a label is called ``name``, or the
            address of the gateway is none. Later, if the port is taken.

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
                "prometheus has nowhere to offer its metrics. Give it a port, a textfile, a pushgateway, or several."
            )
        if "name" in (labels or {}):
            raise tpk.ConfigError(
                f"the labels {labels} have a 'name', which is that of the scalar. Call it differently."
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
        """Begin to serve."""
        self._add_gauge("tpk_global_step", "How many times the session was run.", lambda: trainer.global_step)
        self._add_gauge("tpk_epoch_num", "The epoch under way.", lambda: trainer.epoch_num)
        if self.port is not None:
            self._serve(self.port)
        if self._pushgateway is not None:
            self._pushgateway.start()

    def process_scalar(self, name: str, value: int | float) -> None:
        """Take the latest value."""
        self._scalars.labels(name=name, **self._labels).set(value)

    def flush(self) -> None:
        """Write the file, if there is to be one."""
        if self._textfile is not None:
            # It writes another file and renames it.
            write_to_textfile(os.fspath(self._textfile), self.registry)

    def after_train(self) -> None:
        """Stop serving, and push for the last time.

        Raises:
            OSError: if the Pushgateway does not take that.
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
        # The last one comes first.
        self._resources.callback(thread.join)
        self._resources.callback(server.server_close)
        self._resources.callback(server.shutdown)
        self.port = server.server_port
        logger.info("metrics for Prometheus are at http://%s:%d/metrics", self._address, self.port)
