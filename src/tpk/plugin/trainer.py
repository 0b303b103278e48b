"""Protocols of a trainer: what plugins may use of it, without importing what trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tpk.plugin.progress import Progress, StopRequest


class ProcessGroupProtocol(Protocol):
    """The processes of a training; see `tpk.ProcessGroup`."""

    rank: int
    world_size: int
    seconds_between_meetings: float

    def gather_object(self, what: str, value: Any) -> list[Any]:
        """Return the values that the processes give, by rank; every process calls it, with the same `what`."""

    def broadcast_object(self, what: str, value: Any = None) -> Any:
        """Return the value that the chief gives; every process calls it, with the same `what`."""

    def barrier(self, what: str) -> None:
        """Wait until all processes have come here."""


class StrategyProtocol(Protocol):
    """How the steps of a training are replicated; see `tpk.Strategy`."""

    @property
    def devices(self) -> Sequence[str]:
        """The device strings of the towers of this process; none if TensorFlow places their ops."""

    @property
    def num_replicas(self) -> int:
        """How many towers this process trains."""

    @property
    def world_size(self) -> int:
        """How many processes train together."""

    @property
    def rank(self) -> int:
        """The number of this process among them, from 0 on; 0 is the chief."""

    @property
    def is_reproducible(self) -> bool:
        """Whether two runs with one seed train alike, as far as it depends on the strategy."""

    @property
    def repeats_steps(self) -> bool:
        """Whether a step is all in the graph, so that a loop there can make many of them in one run."""

    @property
    def process_group(self) -> ProcessGroupProtocol:
        """How this process tells the others things."""

    def describe(self) -> dict[str, Any]:
        """Return the options that must be the same in all processes, as plain data."""

    def replicate_variables(self) -> list[Any]:
        """Return the variables in which replicates may differ from the first one."""

    def after_restore(self, sess: Any) -> None:
        """Make the replicates agree, once the variables of the first one have their values."""


class MonitorsProtocol(Protocol):
    """What takes the reports of a training; see `tpk.Monitors`."""

    def put_scalar(self, name: str, value: Any) -> None:
        """Report a number."""

    def put_image(self, name: str, images: Any) -> None:
        """Report one or more images."""

    def put_histogram(self, name: str, values: Any) -> None:
        """Report numbers, to show how they are distributed."""

    def put_summary(self, summary: Any) -> None:
        """Report a `tf.compat.v1.Summary`, or its bytes."""

    muted: bool
    followed: tuple[str, ...]

    def step_means(self) -> dict[str, float]:
        """Return the means, over the epoch so far, of the scalars that `run_step` has reported."""

    def report_step_means(self) -> None:
        """Report these means, at the end of the epoch."""

    @property
    def history(self) -> Any:
        """The statistics so far, a `tpk.History`."""

    def state_dict(self) -> dict[str, Any]:
        """Return the history and the states of the monitors."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    def put_event(self, event: Any) -> None:
        """Report a `tf.compat.v1.Event` that is no value."""

    @property
    def names(self) -> list[str]:
        """The scalars reported so far."""

    def get_latest(self, name: str) -> float:
        """Return the last value of a scalar."""

    def get_history(self, name: str) -> list[tuple[int, float]]:
        """Return the global steps and values of a scalar, oldest first."""


class LoopProtocol(Protocol):
    """The loop of a training; see `tpk.train.loop.TrainLoop`, which says what the attributes are."""

    progress: Progress
    stop: StopRequest
    steps_per_epoch: int
    starting_epoch: int
    max_epoch: int
    steps_per_run: int
    failure: BaseException | None
    ended_by: Exception | None

    def set_epochs(self, steps_per_epoch: Any, starting_epoch: Any, max_epoch: Any) -> None:
        """Set how long the training is."""

    def resume_at(self, progress: Mapping[str, Any], *, epoch_is_over: bool) -> None:
        """Continue after a checkpoint."""

    def sync(self) -> None:
        """Assign the number of completed steps to the global step of the graph, if that may differ."""


class TowerProtocol(Protocol):
    """One tower of a model; see `tpk.TowerHandle`."""

    @property
    def ns_name(self) -> str:
        """Its name scope."""

    @property
    def inputs(self) -> list[Any]:
        """Its input tensors."""

    @property
    def output(self) -> Any:
        """The value that the tower function returned."""

    def get_tensor(self, name: str) -> Any:
        """Return a tensor of the tower."""

    def get_variable(self, name: str) -> Any:
        """Return a variable of the tower."""


class TowersProtocol(Protocol):
    """The towers of a model, in the order in which they were built; see `tpk.TowerHandles`."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __iter__(self) -> Iterator[TowerProtocol]:
        """Iterate over them."""

    @property
    def main(self) -> TowerProtocol | None:
        """The first training tower; None if there is none."""

    def training(self) -> Sequence[TowerProtocol]:
        """Return the training towers."""


class TrainerProtocol(Protocol):
    """What a plugin may use of the trainer that it is registered with.

    Attributes:
        graph: the `tf.Graph` of the training.
        train_op: what a step runs.
        sess: the raw `tf.compat.v1.Session`, from `before_train` on; running it triggers no hook.
        hooked_sess: the session whose `run` triggers the hooks of the step, from `before_train` on.
        hooks: the `HookManager`: every plugin of the training, by its unique name, and what calls them.
        monitors: where statistics are reported.
        input_source: where the data comes from, or None.
        run_dir: where the run keeps its files, or None.
        checkpoints: what takes the checkpoints that savers ask for.
    """

    graph: Any
    train_op: Any
    sess: Any
    hooked_sess: Any
    hooks: Any
    input_source: Any
    run_dir: Path | None

    @property
    def compiles_loops(self) -> bool:
        """Whether XLA compiles the loop over the steps of a run."""

    @property
    def loop(self) -> LoopProtocol:
        """How long the training is, how far it is, and how it ended."""

    @property
    def options(self) -> dict[str, Any]:
        """Options of the trainer that must be the same in all processes."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the trainer itself must keep over a restart."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""

    @property
    def towers(self) -> TowersProtocol:
        """The towers built so far; none in a trainer that has no tower function."""

    @property
    def monitors(self) -> MonitorsProtocol:
        """Where statistics are reported."""

    @property
    def checkpoints(self) -> Any:
        """What takes the checkpoints that savers ask for."""

    @property
    def strategy(self) -> StrategyProtocol:
        """How a step is replicated over devices and processes."""

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes."""

    @property
    def train_ops(self) -> list[Any]:
        """What the runs of a step run."""

    @property
    def epoch_num(self) -> int:
        """The epoch under way."""

    @property
    def local_step(self) -> int:
        """The step under way within the epoch, from 0 on; -1 before the first."""

    @property
    def global_step(self) -> int:
        """How many steps have completed."""

    def register_callback(self, callback: Any) -> None:
        """Add a callback, or a list of them, before the graph is complete."""

    def request_stop(self, reason: str) -> None:
        """End the training in good order when the step under way is over."""


class TowerTrainerProtocol(TrainerProtocol, Protocol):
    """What a plugin may use of a trainer whose model is a tower function."""

    @property
    def tower_func(self) -> Any:
        """The tower function of the model."""

    @property
    def inputs(self) -> list[Any]:
        """The input tensors of the main training tower."""

    def get_predictor(
        self,
        input_names: Sequence[str],
        output_names: Sequence[str] | Mapping[str, str],
        device: str | int | None = None,
    ) -> Any:
        """Return a predictor with the variables of the training."""

    def build_inference_tower(
        self, ns_name: str, inputs: Sequence[Any] | None = None, device: str | None = None
    ) -> Any:
        """Build an inference tower that shares the variables of the main training tower."""
