"""The settings of an `Estimator`, and its place in a cluster."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import attrs
import tensorflow as tf
from attrs.validators import ge, gt, in_, instance_of, min_len, optional

from tpk_estimator.task import Task

logger = logging.getLogger(__name__)

_UNSET: Any = object()
_SECONDS_BETWEEN_CHECKPOINTS = 600


def positive_or_none(default: Any) -> Any:
    """Return an attrs field for a positive number or None."""
    return attrs.field(default=default, validator=optional(gt(0)))


def _at_least(minimum: int, default: Any) -> Any:
    return attrs.field(default=default, validator=optional(ge(minimum)))


def _as_path(path: Any) -> Any:
    return path if path is None else os.fspath(path)


def _check_device_fn(config: Any, attribute: Any, device_fn: Any) -> None:
    if device_fn is not None and list(inspect.signature(device_fn).parameters) != ["op"]:
        raise ValueError(f"device_fn must be a function with one argument, called op, but got {device_fn!r}.")


@attrs.define(slots=False, eq=False)
class RunConfig:
    """The settings of an `Estimator`.

    The environment variable ``TF_CONFIG`` describes a cluster, and the place of this process in it; `Task` reads it.

    Args:
        model_dir: the directory of checkpoints, events and exports; by default that of the `Estimator`.
        tf_random_seed: the random seed of the graph; None for TensorFlow's own.
        save_summary_steps: the number of steps between summaries; 0 for no summaries.
        save_checkpoints_steps: the number of steps between checkpoints.
        save_checkpoints_secs: the seconds between checkpoints, 600 by default. If both are None, nothing is saved.
        session_config: a `tf.compat.v1.ConfigProto`.
        keep_checkpoint_max: the number of latest checkpoints to keep; 0 or None for all.
        keep_checkpoint_every_n_hours: also keep one checkpoint for each period of this many hours.
        log_step_count_steps: the number of steps between two lines in the log with the loss and the rate.
        train_distribute: a `tf.distribute.MirroredStrategy`: each device takes its own batch. In a cluster
            without parameter servers, these are the devices of each process; None for all of its GPUs.
        device_fn: a function that returns the device of an op.
        protocol: the protocol of the servers of a cluster.
        eval_distribute: ignored; an evaluation runs on one device.
        experimental_distribute: an object with the attributes `train_distribute` and `eval_distribute`.
        experimental_max_worker_delay_secs: ignored; workers wait for the chief.
        session_creation_timeout_secs: how long a worker waits for the chief.
        checkpoint_save_graph_def: write ``graph.pbtxt``, and a ``.meta`` file with each checkpoint.

    Raises:
        ValueError: if an option is invalid, or both `save_checkpoints_steps` and `save_checkpoints_secs` are given.
    """

    model_dir: str | None = attrs.field(default=None, converter=_as_path, validator=optional(min_len(1)))
    tf_random_seed: int | None = attrs.field(default=None, validator=optional(instance_of(int)))
    save_summary_steps: int | None = _at_least(0, 100)
    save_checkpoints_steps: int | None = _UNSET
    save_checkpoints_secs: float | None = _UNSET
    session_config: Any = attrs.field(default=None, validator=optional(instance_of(tf.compat.v1.ConfigProto)))
    keep_checkpoint_max: int | None = _at_least(0, 5)
    keep_checkpoint_every_n_hours: float = positive_or_none(10_000)
    log_step_count_steps: int | None = positive_or_none(100)
    train_distribute: Any = None
    device_fn: Any = attrs.field(default=None, validator=_check_device_fn)
    protocol: str | None = attrs.field(default=None, validator=in_([None, "grpc", "grpc+verbs"]))
    eval_distribute: Any = None
    experimental_distribute: Any = None
    experimental_max_worker_delay_secs: int | None = attrs.field(default=None, validator=optional(instance_of(int)))
    session_creation_timeout_secs: float = attrs.field(default=7200, validator=gt(0))
    checkpoint_save_graph_def: bool = True

    def __attrs_post_init__(self) -> None:
        steps, seconds = self.save_checkpoints_steps, self.save_checkpoints_secs
        if steps is _UNSET and seconds is _UNSET:
            seconds = _SECONDS_BETWEEN_CHECKPOINTS
        self._set_saving(None if steps is _UNSET else steps, None if seconds is _UNSET else seconds)
        if self.experimental_distribute is not None:
            self.train_distribute = self.train_distribute or self.experimental_distribute.train_distribute
            self.eval_distribute = self.eval_distribute or self.experimental_distribute.eval_distribute
        environment = json.loads(os.environ.get("TF_CONFIG") or "{}")
        self.task = Task.from_config(environment)
        self.model_dir = _agreed_model_dir(self.model_dir, environment)
        self._warn_of_ignored()

    def replace(self, **changes: Any) -> RunConfig:
        """Return a copy with other values for some options.

        Raises:
            ValueError: if there is no such option, or a value is invalid.
        """
        unknown = changes.keys() - attrs.fields_dict(RunConfig).keys()
        if unknown:
            raise ValueError(
                f"RunConfig has no option {min(unknown)!r} to replace. "
                f"It has: {', '.join(sorted(attrs.fields_dict(RunConfig)))}."
            )
        new = copy.copy(self)
        saving = {
            name: changes.pop(name) for name in ("save_checkpoints_steps", "save_checkpoints_secs") if name in changes
        }
        for name, value in changes.items():
            setattr(new, name, value)
        if any(value is not None for value in saving.values()):
            new._set_saving(saving.get("save_checkpoints_steps"), saving.get("save_checkpoints_secs"))
        else:
            for name in saving:
                setattr(new, name, None)
        return new

    @property
    def cluster_spec(self) -> Any:
        """The `tf.train.ClusterSpec` of the cluster; empty if there is none."""
        return self.task.cluster_spec

    @property
    def task_type(self) -> str:
        """The job of this process, such as ``"worker"``."""
        return self.task.type

    @property
    def task_id(self) -> int:
        """The index of this process within its job."""
        return self.task.index

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints."""
        return self.task.is_chief

    @property
    def master(self) -> str:
        """The address of this process's server; empty without a cluster."""
        return self.task.master

    @property
    def evaluation_master(self) -> str:
        """The address of a server for evaluations; empty for none."""
        return self.task.evaluation_master

    @property
    def num_ps_replicas(self) -> int:
        """The number of parameter servers."""
        return self.task.count("ps")

    @property
    def num_worker_replicas(self) -> int:
        """The number of processes that train."""
        return self.task.count("worker", "chief", "master") or int(self.task_type != "evaluator")

    @property
    def global_id_in_cluster(self) -> int | None:
        """The index of this process in the cluster: chief, other jobs by name, parameter servers last."""
        return self.task.global_index

    @property
    def service(self) -> Any:
        """The service in ``TF_CONFIG``, if any."""
        return self.task.service

    def _set_saving(self, steps: int | None, seconds: float | None) -> None:
        if steps is not None and seconds is not None:
            raise ValueError("save_checkpoints_steps and save_checkpoints_secs cannot both be given: set one of them.")
        for name, value in (("save_checkpoints_steps", steps), ("save_checkpoints_secs", seconds)):
            if value is not None and value < 0:
                raise ValueError(f"{name} must be at least 0, but is {value}.")
        self.save_checkpoints_steps, self.save_checkpoints_secs = steps, seconds

    def _warn_of_ignored(self) -> None:
        if self.eval_distribute is not None:
            logger.warning("eval_distribute of RunConfig is ignored: evaluations run on one device")
        if self.experimental_max_worker_delay_secs is not None:
            logger.warning("experimental_max_worker_delay_secs of RunConfig is ignored: workers wait for the chief")


def _agreed_model_dir(model_dir: str | None, environment: Mapping[str, Any]) -> str | None:
    configured = environment.get("model_dir")
    if model_dir and configured and model_dir != configured:
        raise ValueError(f"model_dir of RunConfig is {model_dir!r}, but TF_CONFIG says {configured!r}: give it once.")
    return model_dir or configured
