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
    """Records a training run in MLflow: parameters, scalars, images, files and the final status.

    The parameters are the content of ``config.json`` in the `run_dir`, without options that have their default values.
    Versions and the Git commit are tags. Histograms are omitted, because MLflow has none.

    When it runs: a thread sends the reports every `flush_secs` seconds and at the end of each epoch, so training never
    waits for a server. When training ends, it waits for the remaining uploads; see `timeout`. It works with every
    strategy; only the chief records.

    A resumed training run continues the same MLflow run, whose id is in the checkpoint. Repeated steps are not recorded
    twice: scalars and images of steps that MLflow already has are not sent again. A training run that was killed before
    its first checkpoint starts a new MLflow run.

    If the server is unreachable, training continues: the failure is logged once, and reports are kept in memory (and in
    checkpoints) until the server is back. If it is not back when training ends, the log says how many reports are
    missing.

    Args:
        tracking_uri: where MLflow records: ``"sqlite:////home/me/mlflow.db"`` or ``"http://server:5000"``; None leaves
            it to MLflow: the environment variable ``MLFLOW_TRACKING_URI``, or ``mlflow.db`` in the current directory.
        experiment: the experiment of the run; created if it does not exist. None for ``MLFLOW_EXPERIMENT_NAME``, or
            ``"Default"``.
        run_name: the name of the run; None for the last two parts of the `run_dir`.
        tags: additional tags of the run, such as ``{"team": "vision"}``.
        artifacts: glob patterns of files in the `run_dir`, such as ``"min-error-*"``, that are uploaded when training
            ends.
        checkpoint: also upload the newest complete checkpoint, to the folder ``checkpoint``.
        timeout: how long to wait for an answer when training starts, and for each remaining upload when it ends, in
            seconds.
        flush_secs: how long reports are collected before they are sent, in seconds.
        retry_secs: how long to wait after a failure, in seconds.
        clock: returns the time of a report, in seconds since 1970.

    Attributes:
        run_id: the id of the run in MLflow; None until it is known.

    Raises:
        ConfigError: if an option is invalid; when training starts, if MLflow rejects a run with these options.

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
        """Start the run, or continue it.

        Raises:
            ConfigError: if MLflow rejects it.
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
        """Record a scalar."""
        self._delivery.put(Value(self._key(name), float(value), self.global_step, self._now()))

    def process_summary(self, summary: Any) -> None:
        """Record the images in a summary; its scalars go to `process_scalar`."""
        for value in summary.value:
            if value.HasField("image"):
                png = value.image.encoded_image_string
                self._delivery.put(Picture(self._key(value.tag), png, self.global_step, self._now()))

    def flush(self) -> None:
        """Ask the thread to send the waiting reports now."""
        self._delivery.flush()

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run, and the reports that were not sent yet."""
        items = [item for item in self._delivery.waiting if isinstance(item, Value | Picture)]
        return {"run_id": self.run_id, "waiting": [[type(item).__name__, *attrs.astuple(item)] for item in items]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, to continue the same run."""
        kinds = {"Value": Value, "Picture": Picture}
        self._resumed_run_id = state["run_id"]
        self._resumed_items = [kinds[kind](*fields) for kind, *fields in state["waiting"]]

    def after_train(self, trainer: Any) -> None:
        """Send the remaining reports, the files and the final status, and wait until they are delivered.

        Raises:
            UndeliveredError: if something was not delivered.
        """
        if self._run is None:
            return
        for item in [*self._files(trainer.run_dir), End(_status(trainer))]:
            self._delivery.put(item)
        try:
            if not self._delivery.wait(self._timeout):
                raise UndeliveredError(
                    f"MLflow is missing the last {len(self._delivery.waiting)} reports and files of this training run, "
                    f"and still shows the run as running: nothing was delivered for {self._timeout:g} seconds"
                    + (f"; the last error: {self._delivery.failure}" if self._delivery.failure else "")
                )
            if self._delivery.lost:
                raise UndeliveredError(f"MLflow is missing {self._delivery.lost} reports of this training run")
        finally:
            self._delivery.close()

    def _wait_for_beginning(self, place: str) -> None:
        assert self._run is not None
        self._delivery.begun.wait(self._timeout)
        failure = self._delivery.failure
        if isinstance(failure, MlflowException) and is_refusal(failure):
            self._delivery.close()
            self._run = None  # So that `after_train` does nothing.
            raise self._refused(failure) from failure
        if self._run.run_id is not None:
            logger.info("MLflow records at %s: experiment %s, run %s", place, self._run.experiment_id, self.run_id)
        elif failure is None:
            logger.error("MLflow at %s did not answer within %g seconds; training starts anyway", place, self._timeout)

    def _refused(self, error: Exception) -> tpk.ConfigError:
        return tpk.ConfigError(
            f"MLflow cannot record this run: {error}. Check tracking_uri={self._tracking_uri!r} and "
            f"experiment={self._experiment!r}, or remove the monitor."
        )

    def _key(self, name: str) -> str:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = as_key(name)
            if key != name:
                logger.info("%r is recorded as %r, because MLflow does not allow the name", name, key)
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
    """Raised when reports of a training run are missing in MLflow."""


def _status(trainer: Any) -> str:
    if trainer.loop.failure is None:
        return "FINISHED"
    return "FAILED" if isinstance(trainer.loop.failure, Exception) else "KILLED"
