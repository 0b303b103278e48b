"""Push metrics to a Pushgateway in a background thread."""

from __future__ import annotations

import logging
import threading
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, pushadd_to_gateway

import tpk

logger = logging.getLogger(f"tpk.{__name__}")

TIMEOUT = 10.0
"""The time limit of a push in seconds, and so the longest delay at the end of training."""


class Pushgateway:
    """Pushes metrics at regular intervals until it is closed.

    Args:
        address: the URL of the gateway, such as ``"http://gateway:9091"``.
        job: the job name of the metrics; a push replaces the metrics of the same name in this job.
        push_secs: the push interval in seconds.
        registry: the metrics.

    Raises:
        ConfigError: if an argument is invalid.
    """

    def __init__(self, address: str, job: str, push_secs: float, registry: CollectorRegistry) -> None:
        if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).netloc:
            raise tpk.ConfigError(f"prometheus(pushgateway={address!r}): expected a URL such as 'http://gateway:9091'.")
        if push_secs <= 0:
            raise tpk.ConfigError(f"prometheus(push_secs={push_secs}): expected a number of seconds greater than 0.")
        if not job:
            raise tpk.ConfigError("prometheus(job=''): expected a name that is unique to this training run.")
        self._address = address
        self._job = job
        self._push_secs = push_secs
        self._registry = registry
        self._is_closing = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="pushes to Prometheus", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Wait for the current push, then push for the last time.

        Raises:
            OSError: if the last push fails.
        """
        self._is_closing.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._push()

    def _run(self) -> None:
        while not self._is_closing.wait(self._push_secs):
            try:
                self._push()
            except Exception as error:
                if not self._is_failing:
                    logger.error(
                        "cannot push to the Pushgateway at %s: %s. Training continues; retrying every %g seconds",
                        self._address,
                        error,
                        self._push_secs,
                    )
                self._is_failing = True
            else:
                if self._is_failing:
                    logger.info("the Pushgateway at %s accepts metrics again", self._address)
                self._is_failing = False

    def _push(self) -> None:
        pushadd_to_gateway(self._address, self._job, self._registry, timeout=TIMEOUT)
