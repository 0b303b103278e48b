"""The monitor ``mlflow``."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

import tpk
from tpk.checkpoint import newest_complete
from tpk_mlflow.delivery import Delivery
from tpk_mlflow.parameters import as_parameters, defaults_of, read_config, source_tags
from tpk_mlflow.store import MAX_BATCH, End, File, Picture, Run, Value, as_key, is_refusal

logger = logging.getLogger(f"tpk.{__name__}")


class MLflowMonitor(tpk.Monitor):
    """Records a training as a run in MLflow: parameters, scalars, images, files, and how it ended.

    The parameters are what ``config.json`` in the `run_dir` says, but for options that were left as they are by
    default; versions and the commit of Git are tags. Histograms are left out: MLflow has none.

    When it runs: what is reported is handed to a thread, which sends it every `flush_secs` seconds and at the end of
    each epoch. A report waits for no server, whether it answers or not. At the end the
    training waits for what is left, see `timeout`. It works on every strategy; only the chief records.

    A training that is resumed goes on in the same run, whose id is in the checkpoint. Steps that it repeats are not
    recorded twice: of each scalar and image, the steps that MLflow has are left as they are. A training that was killed
    before its first checkpoint begins a new run.

    A server that is not there stops no training: the log says so once, reports wait in memory (and in checkpoints), and
    are sent when it is back. If it is not back at the end, the log says how many reports it does not have.

    Args:
        tracking_uri: where MLflow records: ``"sqlite:////home/me/mlflow.db"`` or ``"http://server:5000"``; None leaves
            it to MLflow: the environment variable ``MLFLOW_TRACKING_URI``, or ``mlflow.db`` in the current directory.
        experiment: what the run belongs to; created if need be. None: ``MLFLOW_EXPERIMENT_NAME``, or ``"Default"``.
        run_name: what the run is called; None takes the last two parts of the `run_dir`.
        tags: further tags of the run, such as ``{"team": "vision"}``.
        artifacts: patterns of files in the `run_dir`, such as ``"min-error-*"``, that are kept with the run when the
            training ends.
        checkpoint: keep the newest complete checkpoint as well, in the folder ``checkpoint``.
        timeout: how long the training waits for an answer at its beginning, and at its end for each thing that is left,
            in seconds.
        flush_secs: how long reports wait to be sent together, in seconds.
        retry_secs: how long to wait after a failure, in seconds.
        clock: returns the time of a report, in seconds since 1970.

    Attributes:
        run_id: the id of the run in MLflow; None until it is known.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the training starts, if MLflow refuses to
            begin a run with these options.

    Example:
        ```python
        monitor = tpk.use("mlflow", tracking_uri="sqlite:///mlflow.db", experiment="digits")
        tpk.TrainConfig(..., extra_monitors=[monitor])
        ```
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        experiment: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        artifacts: Sequence[str] = ("config.json", "config.toml", "stats.jsonl", "log.txt"),
        checkpoint: bool = False,
        timeout: float = 60.0,
        flush_secs: float = 10.0,
        retry_secs: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(artifacts, str):
            raise tpk.ConfigError(
                f"mlflow(artifacts={artifacts!r}): expected a list of patterns, e.g. [{artifacts!r}]."
            )
        for name, seconds in {"timeout": timeout, "flush_secs": flush_secs, "retry_secs": retry_secs}.items():
            if seconds <= 0:
                raise tpk.ConfigError(f"mlflow({name}={seconds}): expected a number of seconds greater than 0.")
        self._tracking_uri = tracking_uri
        self._experiment = experiment
        self._run_name = run_name
        self._tags = dict(tags or {})
        self._artifacts = tuple(artifacts)
        self._checkpoint = checkpoint
        self._timeout = timeout
        self._flush_secs = flush_secs
        self._retry_secs = retry_secs
        self._clock = clock
        self._keys: dict[str, str] = {}
        self._resumed_run_id: str | None = None
        self._resumed_items: list[Value | Picture] = []
        self._run: Run | None = None
        self._delivery: Delivery

    @property
    def run_id(self) -> str | None:
        """The id of the run in MLflow; None until it is known."""
        return self._resumed_run_id if self._run is None or self._run.run_id is None else self._run.run_id

    def before_train(self, trainer: Any) -> None:
        """Begin the run, or go on with it.

        Raises:
            ConfigError: if MLflow refuses that.
        """
        config = read_config(trainer.run_dir)
        run_dir = trainer.run_dir
        try:
            client = MlflowClient(self._tracking_uri)
        except MlflowException as error:
            raise self._refused(error) from error
        place = client.tracking_uri
        self._run = Run(
            client,
            self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default",
            self._run_name or (None if run_dir is None else "/".join(Path(run_dir).resolve().parts[-2:])),
            as_parameters(config, defaults_of([trainer, *trainer.hooks.plugins.values()])),
            {**source_tags(config), **({} if run_dir is None else {"tpk.run_dir": str(run_dir)}), **self._tags},
            self._resumed_run_id,
        )
        self._delivery = Delivery(
            f"MLflow at {place}",
            self._run.deliver,
            batch=MAX_BATCH,
            flush_secs=self._flush_secs,
            retry_secs=self._retry_secs,
            first=self._run.begin,
        )
        for item in self._resumed_items:
            self._delivery.put(item)
        self._delivery.start()
        self._wait_for_beginning(place)

    def process_scalar(self, name: str, value: int | float) -> None:
        """Take a number."""
        self._delivery.put(Value(self._key(name), float(value), self.global_step, self._now()))

    def process_summary(self, summary: Any) -> None:
        """Take the images that are in a summary; the scalars arrive by `process_scalar`."""
        for value in summary.value:
            if value.HasField("image"):
                png = value.image.encoded_image_string
                self._delivery.put(Picture(self._key(value.tag), png, self.global_step, self._now()))

    def flush(self) -> None:
        """Have what was reported sent now, by the thread."""
        self._delivery.flush()

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run, and what MLflow does not have yet."""
        items = [item for item in self._delivery.waiting if isinstance(item, Value | Picture)]
        return {"run_id": self.run_id, "waiting": [[type(item).__name__, *attrs.astuple(item)] for item in items]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned, so that the same run goes on."""
        kinds = {"Value": Value, "Picture": Picture}
        self._resumed_run_id = state["run_id"]
        self._resumed_items = [kinds[kind](*fields) for kind, *fields in state["waiting"]]

    def after_train(self, trainer: Any) -> None:
        """Send what is left, the files, and how the training ended; wait for that.

        Raises:
            UndeliveredError: if MLflow does not take it in time.
        """
        if self._run is None:
            return
        for item in [*self._files(trainer.run_dir), End(_status(trainer))]:
            self._delivery.put(item)
        try:
            if not self._delivery.wait(self._timeout):
                raise UndeliveredError(
                    f"MLflow does not have the last {len(self._delivery.waiting)} reports and files of this training, "
                    f"and shows its run as one that still runs. It was waited for, {self._timeout:g} seconds"
                    + (f"; its last answer: {self._delivery.failure}" if self._delivery.failure else "")
                )
            if self._delivery.lost:
                raise UndeliveredError(f"MLflow does not have {self._delivery.lost} reports of this training")
        finally:
            self._delivery.close()

    def _wait_for_beginning(self, place: str) -> None:
        assert self._run is not None
        self._delivery.begun.wait(self._timeout)
        failure = self._delivery.failure
        if isinstance(failure, MlflowException) and is_refusal(failure):
            self._delivery.close()
            self._run = None  # There is nothing to end.
            raise self._refused(failure) from failure
        if self._run.run_id is not None:
            logger.info("MLflow records at %s: experiment %s, run %s", place, self._run.experiment_id, self.run_id)
        elif failure is None:
            logger.error("MLflow at %s has not answered in %g seconds; the training begins", place, self._timeout)

    def _refused(self, error: Exception) -> tpk.ConfigError:
        return tpk.ConfigError(
            f"MLflow does not record this run: {error}. Check tracking_uri={self._tracking_uri!r} and "
            f"experiment={self._experiment!r}, or leave the monitor out."
        )

    def _key(self, name: str) -> str:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = as_key(name)
            if key != name:
                logger.info("%r is called %r in MLflow, which does not take the name as it is", name, key)
        return key

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _files(self, run_dir: Path | None) -> list[File]:
        if run_dir is None:
            return []
        found = {path for pattern in self._artifacts for path in run_dir.glob(pattern) if path.is_file()}
        files = [File(path) for path in sorted(found)]
        checkpoint = newest_complete(run_dir) if self._checkpoint else None
        if checkpoint is not None:
            names = [*checkpoint.files, checkpoint.state_path.name]
            files += [File(run_dir / name, "checkpoint") for name in names]
        return files


class UndeliveredError(tpk.TpkError, RuntimeError):
    """MLflow does not have all that a training has reported."""


def _status(trainer: Any) -> str:
    if trainer.loop.failure is None:
        return "FINISHED"
    return "FAILED" if isinstance(trainer.loop.failure, Exception) else "KILLED"
