"""What plugins may use of a trainer, as protocols, and the options of a run, which they may change."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import attrs

from tpk.plugin.progress import Progress, StopRequest

if TYPE_CHECKING:
    import numpy as np
    import pluggy


# TensorFlow has no types for these.
Graph: TypeAlias = Any
Session: TypeAlias = Any
Tensor: TypeAlias = Any

Array: TypeAlias = "np.ndarray[Any, Any]"

State: TypeAlias = dict[str, Any]
"""Plain data of a checkpoint."""

StrPath: TypeAlias = str | os.PathLike[str]

FOREVER = 2**63 - 1
"""The `max_epoch` of a training run that ends by itself."""


@attrs.define
class RunOptions:
    """The options of a run, from the arguments of `Trainer.train`; `Callback.configure_run` changes them in place.

    Attributes:
        steps_per_epoch: the number of steps in an epoch.
        starting_epoch: the number of the first epoch.
        max_epoch: the number of the last epoch.
        run_dir: the directory of the run; None for none.
        resume: ``"auto"``, ``"must"`` or ``"never"``.
        may_hold_run: whether a run that is not resumed may start in a directory that holds another one.
        resources: closed at the end of the run, after the log and all other files of the run.
    """

    steps_per_epoch: int
    starting_epoch: int
    max_epoch: int
    run_dir: StrPath | None
    resume: str
    resources: ExitStack
    may_hold_run: bool = False


class ProcessGroupProtocol(Protocol):
    """The processes of a training run; see `tpk.ProcessGroup`."""

    rank: int
    world_size: int

    def gather_object(self, what: str, value: object) -> list[Any]:
        """Return the values of all processes, by rank. Every process calls it with the same `what`."""

    def broadcast_object(self, what: str, value: object = None) -> Any:
        """Return the value of the chief. Every process calls it with the same `what`."""

    def barrier(self, what: str) -> None:
        """Wait until all processes have called it."""


class StrategyProtocol(Protocol):
    """How the steps of a training run are replicated; see `tpk.Strategy`."""

    seconds_between_meetings: float

    @property
    def devices(self) -> Sequence[str]:
        """The device strings of the towers of this process; empty if TensorFlow places their ops."""

    @property
    def num_replicas(self) -> int:
        """The number of towers that this process trains."""

    @property
    def world_size(self) -> int:
        """The number of processes that train together."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0; 0 is the chief."""

    @property
    def builds_towers(self) -> bool:
        """False only for the strategy of a trainer without towers."""

    @property
    def is_reproducible(self) -> bool:
        """Whether the strategy computes the same in two runs with the same seed."""

    @property
    def repeats_steps(self) -> bool:
        """Whether a step is completely in the graph, so that a loop there can run many of them."""

    @property
    def process_group(self) -> ProcessGroupProtocol:
        """How this process communicates with the others."""

    def describe(self) -> State:
        """Return the options that must be the same in all processes."""

    def replicate_variables(self) -> list[Tensor]:
        """Return the variables in which replicas may differ from the first one."""

    def after_restore(self, sess: Session) -> None:
        """Synchronize the replicas after the variables of the first one were restored."""


class HistoryProtocol(Protocol):
    """The statistics so far; see `tpk.History`."""

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the scalars."""

    def __contains__(self, name: object) -> bool:
        """Return whether a scalar was reported."""

    def epochs(self, name: str) -> Array:
        """Return the epochs in which a scalar was reported, oldest first."""

    def columns(self, *names: str) -> dict[str, Array]:
        """Return the history as columns of a table."""

    def of(self, name: str) -> list[tuple[int, float]]:
        """Return the global steps and values of a scalar, oldest first."""

    def best(self, name: str, mode: str = "min") -> tuple[float, int, int] | None:
        """Return the best value of a scalar, and its epoch and global step."""

    def nearest(self, name: str) -> str:
        """Return a hint for a name that was never reported."""


class MonitorsProtocol(Protocol):
    """Where a training run reports; see `tpk.Monitors`."""

    followed: tuple[str, ...]

    def put_scalar(self, name: str, value: object) -> None:
        """Report a number."""

    def put_image(self, name: str, images: object) -> None:
        """Report one or more images."""

    def put_histogram(self, name: str, values: object) -> None:
        """Report numbers, to show their distribution."""

    def put_summary(self, summary: object) -> None:
        """Report a `tf.compat.v1.Summary`, or its bytes."""

    def put_event(self, event: object) -> None:
        """Report a `tf.compat.v1.Event` that has no value."""

    def step_means(self) -> dict[str, float]:
        """Return the means, over the epoch so far, of the scalars reported by `run_step`."""

    def report_step_means(self) -> None:
        """Report these means at the end of the epoch."""

    def pause(self) -> None:
        """Ignore reports until `resume`."""

    def resume(self) -> None:
        """Take reports again."""

    def start_over(self) -> None:
        """Set aside the records of an attempt at this run that left no checkpoint."""

    def state_dict(self) -> State:
        """Return the history and the states of the monitors."""

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""

    @property
    def history(self) -> HistoryProtocol:
        """The statistics so far."""

    @property
    def names(self) -> list[str]:
        """The names of the scalars reported so far."""

    def get_latest(self, name: str) -> float:
        """Return the last value of a scalar."""

    def get_history(self, name: str) -> list[tuple[int, float]]:
        """Return the global steps and values of a scalar, oldest first."""


class LoopProtocol(Protocol):
    """The loop of a training run; see `tpk.train.loop.TrainLoop`, which describes the attributes."""

    progress: Progress
    stop: StopRequest
    steps_per_epoch: int
    starting_epoch: int
    max_epoch: int
    steps_per_run: int
    is_compiled: bool
    run_timeout_in_ms: int
    failure: BaseException | None
    ended_by: Exception | None

    @property
    def is_in_run_step(self) -> bool:
        """Whether `run_step` itself is running, as opposed to an ``after_run`` that it calls."""

    def set_epochs(self, steps_per_epoch: object, starting_epoch: object, max_epoch: object) -> None:
        """Set the length of the run."""

    def resume_at(self, progress: State, *, epoch_is_over: bool) -> None:
        """Continue after a checkpoint."""

    def sync(self) -> None:
        """Assign the number of completed steps to the global step of the graph, if they may differ."""


class TowerProtocol(Protocol):
    """One tower of a model; see `tpk.TowerHandle`."""

    @property
    def ns_name(self) -> str:
        """The name scope of the tower."""

    @property
    def inputs(self) -> list[Tensor]:
        """The input tensors."""

    @property
    def output(self) -> Tensor:
        """The value that the tower function returned."""

    def get_tensor(self, name: str) -> Tensor:
        """Return a tensor of the tower."""

    def get_variable(self, name: str) -> Tensor:
        """Return a variable of the tower."""


class TowersProtocol(Protocol):
    """The towers of a model in the order in which they were built; see `tpk.TowerHandles`."""

    def __len__(self) -> int:
        """Return the number of towers."""

    def __iter__(self) -> Iterator[TowerProtocol]:
        """Iterate over the towers."""

    @property
    def main(self) -> TowerProtocol | None:
        """The first training tower, or None."""

    def training(self) -> Sequence[TowerProtocol]:
        """Return the training towers."""


class HooksProtocol(Protocol):
    """The registry of the plugins of a run; see `tpk.HookManager`."""

    hook: pluggy.HookRelay

    @property
    def plugins(self) -> Mapping[str, object]:
        """The plugins by unique name, in the order of their calls."""

    def after_train(self, trainer: TrainerProtocol) -> list[BaseException]:
        """Call every `after_train`, and return the failures."""


class HookedSessionProtocol(Protocol):
    """The session of a step; see `tpk.HookedSession`."""

    is_in_after_run: bool

    def run(self, fetches: object, feed_dict: object = None, *, steps: int = 0) -> Any:
        """Run `fetches` and the requests of the hooks, once."""


class InputSourceProtocol(Protocol):
    """The data of a training run; see `tpk.InputSource`."""

    @property
    def signature(self) -> Sequence[Tensor]:
        """The `tf.TensorSpec`s of a datapoint."""

    @property
    def is_fed(self) -> bool:
        """Whether the data of a step is fed along with its run."""

    @property
    def size(self) -> int | None:
        """The number of datapoints in one pass over the data, or None."""

    @property
    def left_out(self) -> int:
        """The number of datapoints at the end of each pass that make no whole batch."""

    @property
    def consumed(self) -> int:
        """The number of datapoints that have left the source."""

    def datapoints_of(self, takes: range) -> range:
        """Return the numbers of the datapoints that towers took."""

    def seed(self, seed: int) -> None:
        """Seed the random numbers of the data."""

    def make_meter(self) -> Any:
        """Return a meter of how long steps wait for the data, or None."""

    def interrupt(self) -> None:
        """Make runs that wait for a datapoint fail."""

    def state_dict(self) -> State:
        """Return the position in the data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class CheckpointProtocol(Protocol):
    """A complete checkpoint."""

    @property
    def prefix(self) -> str:
        """Its path, without the suffixes of its files."""


class CheckpointsProtocol(Protocol):
    """Takes the checkpoints that savers request; see `tpk.train.resume.checkpoints`."""

    stop: StopRequest

    @property
    def variables(self) -> Sequence[Tensor]:
        """The variables that a checkpoint contains."""

    @property
    def shared_variables(self) -> Sequence[Tensor]:
        """Those that every checkpoint of the model contains."""

    @property
    def last_path(self) -> Path | None:
        """The path of the latest checkpoint of this run, or None."""

    def register(self, saver: Any) -> None:
        """Add a saver, in its `setup_graph`."""

    def request(self, series: Any) -> None:
        """Request a checkpoint of this moment, written by a `CheckpointSeries`."""

    def announce(self, name: str) -> None:
        """Announce that a checkpoint is being saved."""

    def take_announcements(self) -> list[str]:
        """Return the names of the checkpoints of this end of an epoch."""

    def before_saving(self) -> None:
        """Call the hook ``before_checkpoint``."""

    def newest(self) -> CheckpointProtocol | None:
        """Return the newest complete checkpoint of this run, or None."""

    def restore_variables(self, prefix: str) -> None:
        """Assign the values of a checkpoint to the variables."""

    def assign(self, values: Mapping[str, Any]) -> None:
        """Assign values to variables by name."""

    def forget_requests(self) -> None:
        """Drop requests that were not served yet."""

    def save_now(self) -> Path | None:
        """Save a checkpoint, and wait until it is on disk."""


class TrainerProtocol(Protocol):
    """The part of a trainer that plugins may use.

    Attributes:
        graph: the `tf.Graph` of the training run.
        train_op: the op that a step runs.
        sess: the raw `tf.compat.v1.Session`, from `before_train` on; running it calls no hook.
        run_dir: the directory of the run, or None.
    """

    graph: Graph
    train_op: Tensor
    sess: Session
    run_dir: Path | None

    @property
    def hooks(self) -> HooksProtocol:
        """Every plugin of the run, under its unique name, and their hooks."""

    @property
    def hooked_sess(self) -> HookedSessionProtocol:
        """The session whose `run` calls the hooks of the step, from `before_train` on."""

    @property
    def input_source(self) -> InputSourceProtocol | None:
        """The source of the data, or None."""

    @property
    def checkpoints(self) -> CheckpointsProtocol:
        """Takes the checkpoints that savers request."""

    @property
    def loop(self) -> LoopProtocol:
        """The length of the run, its counters, and its end."""

    @property
    def options(self) -> State:
        """Options of the trainer that must be the same in all processes."""

    def state_dict(self) -> State:
        """Return the state of the trainer for a checkpoint."""

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""

    @property
    def towers(self) -> TowersProtocol:
        """The towers built so far; empty in a trainer without a tower function."""

    @property
    def monitors(self) -> MonitorsProtocol:
        """Where statistics are reported."""

    @property
    def strategy(self) -> StrategyProtocol:
        """How a step is replicated over devices and processes."""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints, statistics and events."""

    @property
    def train_ops(self) -> list[Tensor]:
        """The ops that the runs of a step run."""

    @property
    def epoch_num(self) -> int:
        """The number of the current epoch."""

    @property
    def local_step(self) -> int:
        """The number of the current step in the epoch, from 0; -1 before the first."""

    @property
    def global_step(self) -> int:
        """The number of completed steps."""

    def register_callback(self, callback: object) -> None:
        """Add a callback, or a list of them, before the graph is complete."""

    def request_stop(self, reason: str) -> None:
        """End the run cleanly after the current step."""
