"""Pushes to a Pushgateway, by a thread of their own."""

from __future__ import annotations

import logging
import threading
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, pushadd_to_gateway

import tpk

logger = logging.getLogger(f"tpk.{__name__}")

TIMEOUT = 10.0
"""How long a push may take, in seconds; so long the end of a training may have to wait."""


class Pushgateway:
    """Pushes metrics again and again, until it is closed.

    Args:
        address: where the gateway is, such as ``"http://gateway:9091"``.
        job: what the metrics are those of; they replace what the gateway has of that.
        push_secs: how often, in seconds.
        registry: the metrics.

    Raises:
        ConfigError: if an argument has a value that it cannot have.
    """

    def __init__(self, address: str, job: str, push_secs: float, registry: CollectorRegistry) -> None:
        if urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).netloc:
            raise tpk.ConfigError(f"prometheus(pushgateway={address!r}): expected an address as 'http://gateway:9091'.")
        if push_secs <= 0:
            raise tpk.ConfigError(f"prometheus(push_secs={push_secs}): expected a number of seconds greater than 0.")
        if not job:
            raise tpk.ConfigError("prometheus(job=''): expected a name, which tells the trainings of a gateway apart.")
        self._address = address
        self._job = job
        self._push_secs = push_secs
        self._registry = registry
        self._is_closing = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="pushes to Prometheus", daemon=True)

    def start(self) -> None:
        """Begin to push."""
        self._thread.start()

    def close(self) -> None:
        """Push for the last time, after the push under way.

        Raises:
            OSError: if that fails.
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
                        "the Pushgateway at %s takes no metrics: %s. The training goes on; it is tried again every %g "
                        "seconds",
                        self._address,
                        error,
                        self._push_secs,
                    )
                self._is_failing = True
            else:
                if self._is_failing:
                    logger.info("the Pushgateway at %s takes metrics again", self._address)
                self._is_failing = False

    def _push(self) -> None:
        pushadd_to_gateway(self._address, self._job, self._registry, timeout=TIMEOUT)
