"""Temporary log directories."""

from __future__ import annotations

import logging

import pytest
from tpk_tensorpack.utils import logger


@pytest.fixture
def log_dir(tmp_path, monkeypatch):
    """A log directory that is set like in a script."""
    monkeypatch.chdir(tmp_path)
    logger.set_logger_dir("log")
    yield tmp_path / "log"
    log = logging.getLogger("tpk_tensorpack")
    log.removeHandler(logger._file_handler)
    logger._file_handler.close()
    logger._file_handler = logger.LOG_DIR = None
