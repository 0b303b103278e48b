"""A run in MLflow, new or continued, and the items that are recorded in it."""

from __future__ import annotations

import io
import logging
import posixpath
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import attrs
import PIL.Image
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking.context.registry import resolve_tags
from mlflow.utils.validation import MAX_ENTITY_KEY_LENGTH, MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH

from tpk_mlflow.delivery import RefusedError

logger = logging.getLogger(f"tpk.{__name__}")

MAX_BATCH: int = MAX_METRICS_PER_BATCH
"""The maximum number of values per request."""

_NOT_IN_NAMES = re.compile(r"[^\w/.\- ]", re.ASCII)
# The file names of `MlflowClient.log_image` in current and older versions.
_IMAGE_FILE = re.compile(r"images/(?P<key>.+)[+%]step[+%](?P<step>\d+)[+%]timestamp")
_TRY_AGAIN = (408, 429)


@attrs.frozen
class Value:
    """A scalar at a step; `timestamp` is in milliseconds since 1970."""

    key: str
    number: float
    step: int
    timestamp: int


@attrs.frozen
class Picture:
    """A PNG image at a step."""

    key: str
    png: bytes = attrs.field(repr=False)
    step: int
    timestamp: int


@attrs.frozen
class File:
    """A file to upload, optionally to a folder."""

    path: Path
    folder: str | None = None


@attrs.frozen
class End:
    """The end of the run, with its status: ``"FINISHED"``, ``"FAILED"`` or ``"KILLED"``."""

    status: str


Item = Value | Picture | File | End


class Run:
    """A run in MLflow, which is started by `begin` or by the first delivery.

    Args:
        client: the MLflow client.
        experiment: the name of the experiment, which is created if it does not exist.
        run_name: the name of the run; None leaves it to MLflow.
        parameters: the parameters of the run.
        tags: the tags of the run.
        run_id: the run to continue; None to start a new one.

    Attributes:
        run_id: the id of the run; None until it is started.
        experiment_id: the id of its experiment; None until then.
    """

    def __init__(
        self,
        client: MlflowClient,
        experiment: str,
        run_name: str | None,
        parameters: Mapping[str, str],
        tags: Mapping[str, str],
        run_id: str | None = None,
    ) -> None:
        self._client = client
        self._experiment = experiment
        self._run_name = run_name
        self._parameters = parameters
        self._tags = tags
        self._to_go_on_with = run_id
        self.run_id: str | None = None
        self.experiment_id: str | None = None
        # The last step of each value and image that the continued run already had.
        self._steps_there: dict[tuple[type, str], int] = {}

    def deliver(self, items: Sequence[Item]) -> int:
        """Record the leading values of `items`, or else its first item; return how many were recorded.

        Raises:
            RefusedError: if MLflow rejects it.
            Exception: if MLflow cannot be reached.
        """
        try:
            self.begin()
            values = list(takewhile(lambda item: isinstance(item, Value), items))
            if values:
                self._put_values(values)
                return len(values)
            self._put(items[0])
            return 1
        except MlflowException as error:
            if is_refusal(error):
                raise RefusedError(str(error)) from error
            raise

    def begin(self) -> None:
        """Start or continue the run; do nothing if it was started before.

        Raises:
            Exception: if this fails.
        """
        if self.run_id is None:
            self.run_id = self._begin()

    def _put_values(self, values: Sequence[Value]) -> None:
        metrics = [Metric(each.key, each.number, each.timestamp, each.step) for each in values if self._is_new(each)]
        if metrics:
            self._client.log_batch(self.run_id, metrics=metrics, synchronous=True)

    def _put(self, item: Item) -> None:
        if isinstance(item, Picture) and self._is_new(item):
            with PIL.Image.open(io.BytesIO(item.png)) as image:
                self._client.log_image(
                    self.run_id, image, key=item.key, step=item.step, timestamp=item.timestamp, synchronous=True
                )
        elif isinstance(item, File):
            self._client.log_artifact(self.run_id, str(item.path), item.folder)
        elif isinstance(item, End):
            self._client.set_terminated(self.run_id, item.status)

    def _is_new(self, item: Value | Picture) -> bool:
        return item.step > self._steps_there.get((type(item), item.key), -1)

    def _begin(self) -> str:
        run = None if self._to_go_on_with is None else self._find(self._to_go_on_with)
        if run is None:
            run = self._client.create_run(
                self._find_experiment(), run_name=self._run_name, tags=resolve_tags(dict(self._tags))
            )
        else:
            self._steps_there = self._find_steps(run)
            self._client.update_run(run.info.run_id, status="RUNNING")
        run_id = str(run.info.run_id)
        self.experiment_id = run.info.experiment_id
        self._put_parameters(run_id, run.data.params)
        return run_id

    def _find(self, run_id: str) -> Any:
        """Return the run to continue, or None if it no longer exists."""
        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            run = None
        if run is None or run.info.lifecycle_stage == "deleted":
            logger.warning(
                "MLflow at %s no longer has the run %s, which this training run used before; a new one is started",
                self._client.tracking_uri,
                run_id,
            )
            return None
        return run

    def _find_experiment(self) -> str:
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment is not None:
            return str(experiment.experiment_id)
        return str(self._client.create_experiment(self._experiment))

    def _find_steps(self, run: Any) -> dict[tuple[type, str], int]:
        """Return the last step of each value and image of a run."""
        run_id = run.info.run_id
        steps: dict[tuple[type, str], int] = {}
        for key in run.data.metrics:
            steps[Value, key] = max(each.step for each in self._client.get_metric_history(run_id, key))
        for file in self._client.list_artifacts(run_id, "images"):
            match = _IMAGE_FILE.match(file.path)
            if match:
                key = (Picture, match["key"].replace("~", "/"))
                steps[key] = max(steps.get(key, -1), int(match["step"]))
        return steps

    def _put_parameters(self, run_id: str, there: Mapping[str, str]) -> None:
        named = {as_key(name): value or '""' for name, value in self._parameters.items()}
        changed = {name: value for name, value in named.items() if there.get(name, value) != value}
        if changed:
            # MLflow never changes a parameter.
            logger.info(
                "the parameters of the run %s have changed: %s; MLflow keeps their first values", run_id, changed
            )
        new = [Param(name, value) for name, value in named.items() if name not in there]
        for start in range(0, len(new), MAX_PARAMS_TAGS_PER_BATCH):
            part = new[start : start + MAX_PARAMS_TAGS_PER_BATCH]
            self._client.log_batch(run_id, params=part, synchronous=True)
        if self._steps_there and self._tags:
            self._client.log_batch(run_id, tags=[RunTag(*tag) for tag in self._tags.items()], synchronous=True)


def as_key(name: str) -> str:
    """Return `name` as a valid MLflow name of a value, parameter or image; a valid name is unchanged.

    MLflow allows ASCII letters, digits and ``_-. /``, and the name must be a normalized path.
    """
    key = posixpath.normpath(_NOT_IN_NAMES.sub("_", name)).lstrip("/")
    while key.startswith("../"):
        key = key[3:]
    return key[:MAX_ENTITY_KEY_LENGTH] if key not in (".", "..", "") else "_"


def is_refusal(error: MlflowException) -> bool:
    """Whether an error means that the request is invalid and retrying is useless, not that the server is down."""
    status = error.get_http_status_code()
    return bool(400 <= status < 500) and status not in _TRY_AGAIN
