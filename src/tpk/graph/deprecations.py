"""Deprecation messages of TensorFlow, silenced where it has no other way."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Within the context, TensorFlow's log does not tell what is deprecated."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return "deprecated" not in str(record.msg)

    log = tf.get_logger()
    log.addFilter(is_wanted)
    try:
        yield
    finally:
        log.removeFilter(is_wanted)
