"""Values of tensors in the steps of a training: printed, dumped to files, or handed to a function."""

from __future__ import annotations

import io
import logging
import math
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tpk.callbacks.run_tensors import RunCompanions, RunTensor, find_tensor, run_tensors
from tpk.durable_files import replace_file
from tpk.errors import ConfigError
from tpk.graph.gradients import recorded_gradients
from tpk.graph.variables import name_in_tower
from tpk.plugin import Callback
from tpk.plugin.progress import Progress
from tpk.tf_internals import is_reference

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)


class LooksAtSteps(Callback, ABC):
    """Looks at some steps; the others cost one comparison of two numbers.

    A step has the number to which it brings `global_step`, in each of its runs of the session. Where one run makes
    several steps, it has that of the last, and is looked at if one of them is to be.

    A subclass says in `next_due` which steps it looks at, asks in ``before_run`` whether the one under way is due, and
    sets `due_at` anew once it has looked.

    Attributes:
        due_at: the number of the next step to look at.
    """

    def __init__(self) -> None:
        self.due_at: float = math.inf
        self._progress = Progress()
        self._steps_per_epoch = 0
        self._offset = 0

    @abstractmethod
    def next_due(self, step: int) -> float:
        """Return the number of the first step to look at after `step`."""

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Find out how steps are numbered, and which one is the first to look at."""
        self._progress, self._steps_per_epoch = trainer.loop.progress, trainer.loop.steps_per_epoch
        # A training that is resumed within an epoch has that epoch under way already.
        done = trainer.local_step + 1 if trainer.epoch_num == trainer.loop.starting_epoch else 0
        self._offset = trainer.global_step - done - trainer.loop.starting_epoch * self._steps_per_epoch + 1
        self.due_at = self.next_due(trainer.global_step)

    @property
    def step_under_way(self) -> int:
        """The number of the step under way: what `global_step` is when it has completed."""
        # Not by `global_step`, which has counted the step already when it runs the session once more; nor by what a
        # hook of the epoch notes, which is not called while `EnableCallbackIf` has the callback disabled.
        progress = self._progress
        return self._offset + progress.epoch_num * self._steps_per_epoch + progress.local_step


class LooksAtTensors(LooksAtSteps):
    """Fetches tensors along with steps, in the very runs to which they belong; the base of what looks at values.

    So nothing is computed twice, and nothing is taken from the data for it. Of a step that runs the session several
    times, each tensor has the value of the first run that computes it. If a step that is due does not compute all of
    them, as where objectives are minimized in turn, the next one is looked at that does.

    A subclass does its part in `look`.

    Args:
        tensors: what to fetch: the name of a tensor in the main training tower, or else in the graph; a tensor; or a
            list of these.
        every_k_steps: fetch it in steps whose number is a multiple of it; where one run makes several steps, from the
            last step of the run that passes such a one.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the graph is set up, if something is no
            tensor of the graph with a value, or no step can compute it.
        TowerError: then, if no tensor has that name; the message has the nearest names.
    """

    def __init__(self, tensors: Any, every_k_steps: int = 1) -> None:
        super().__init__()
        self._wanted = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        if not self._wanted:
            raise ConfigError(f"{type(self).__name__}([]): there is nothing to look at. Name a tensor.")
        self._every_k_steps = check_period(type(self).__name__, every_k_steps)
        self._tensors: dict[str, Any] = {}
        self._companions: RunCompanions
        # What is still to come of the step with this number, and what has come.
        self._step = 0
        self._missing: set[str] = set()
        self._values: dict[str, Any] = {}
        # What is fetched along with the run under way.
        self._names: tuple[str, ...] = ()
        self._last: tuple[Any, tuple[str, ...], tuple[Any, ...] | None] = (None, (), None)

    @abstractmethod
    def look(self, values: dict[str, Any]) -> None:
        """Do something with the values of a step, by their names."""

    def find_tensors(self, trainer: TrainerProtocol) -> list[RunTensor]:
        """Return what to fetch, each with the name that it is shown with."""
        return run_tensors(trainer.graph, labelled_tensors(self, trainer, self._wanted).items())

    def next_due(self, step: int) -> float:
        """Return the number of the first step to look at after `step`."""
        return (step // self._every_k_steps + 1) * self._every_k_steps

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the tensors, and the runs to which they belong.

        Raises:
            ConfigError: if one cannot be fetched along with a step.
            TowerError: if there is none of a name.
        """
        found = self.find_tensors(trainer)
        self._tensors = {each.name: each.tensor for each in found}
        self._companions = RunCompanions(trainer, found, lambda named, *_: tuple(name for name, _ in named) or None)
        if self._companions.left_out:
            left_out = ", ".join(each.name for each in self._companions.left_out)
            raise ConfigError(
                f"{type(self).__name__}: no step takes the data on which {left_out} depends, so it cannot be fetched "
                "along with one. Name a tensor of the main training tower."
            )

    def before_run(self, run_context: Any) -> Any:
        """Return the tensors that belong to the run, if the step is to be looked at."""
        step = self.step_under_way
        if step < self.due_at:
            return None
        if step != self._step:
            self._step = step
            self.begin_step()
        return self._request_for(run_context.original_args.fetches)

    def begin_step(self) -> None:
        """Get ready for a step that is looked at: values of an earlier one do not belong to it."""
        self._values = {}
        self._missing = set(self._tensors)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Take the values; once all of them are there, look at them."""
        if run_values.results is None:
            return
        came = dict(zip(self._names, run_values.results, strict=True))
        self._missing -= came.keys()
        if not self._missing:
            self.due_at = self.next_due(self.global_step)
        self.take(came)

    def take(self, values: dict[str, Any]) -> None:
        """Take what a run has computed."""
        self._values.update(values)
        if not self._missing:
            self.look({name: self._values[name] for name in self._tensors})

    def state_dict(self) -> dict[str, Any]:
        """Return which step is the next to look at."""
        return {"due_at": self.due_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        self.due_at = min(self.due_at, state["due_at"])

    def _request_for(self, fetches: Any) -> tuple[Any, ...] | None:
        known, names, request = self._last
        if fetches is not known:
            found = self._companions.request_for(fetches) or ()
            groups = found if isinstance(found, list) else [found]
            names = tuple(dict.fromkeys(name for group in groups for name in group))
            # A tuple of tensors is known by its identity, so that the run is compiled once.
            request = tuple(self._tensors[name] for name in names) or None
            self._last = (fetches, names, request)
        if self._missing.issuperset(names):
            self._names = names
            return request
        self._names = tuple(name for name in names if name in self._missing)
        return tuple(self._tensors[name] for name in self._names) or None


class ProcessTensors(LooksAtTensors):
    """Calls a function with the values of tensors in each step, or in every k-th.

    - **When it runs**: along with the step; the function is called when its run is over.
    - **What it costs**: the values are copied out of the graph in the steps that it looks at, and in no other. Where
      one run makes several steps (`steps_per_run`), they are those of the last step of a run.
    - **Where it works**: on every strategy; it looks at the main training tower of the chief. Set `chief_only` to False
      to have it in every process.

    Args:
        tensors: the names of tensors in the main training tower, with or without ``:0``, or else in the graph; tensors;
            or one of these. Not variables: their value within a step may be that before the update or that after it.
        fn: takes the values, in this order, as arrays; may raise `StopTraining`.
        every_k_steps: look at steps whose number (`global_step` after the step) is a multiple of it.

    Raises:
        ConfigError: if an option has a value that it cannot have; when the graph is set up, if something is no tensor
            with a value, or no step can compute it.
        TowerError: then, if no tensor has that name; the message has the nearest names.

    Example:
        ```python
        ProcessTensors(["cost", "logits"], lambda cost, logits: print(cost, logits.max()), every_k_steps=100)
        ```
    """

    def __init__(self, tensors: Any, fn: Callable[..., None], *, every_k_steps: int = 1) -> None:
        super().__init__(tensors, every_k_steps)
        if not callable(fn):
            raise ConfigError(f"ProcessTensors(fn={fn!r}): expected a function that takes the values of the tensors.")
        self._fn = fn

    def look(self, values: dict[str, Any]) -> None:
        """Call the function."""
        self._fn(*values.values())


class TensorPrinter(LooksAtTensors):
    """Writes the values of tensors into the log in each step, or in every k-th.

    When it runs, what it costs and where it works is as for `ProcessTensors`. Arrays of more than `max_elements`
    elements are shortened.

    Args:
        tensors: as for `ProcessTensors`.
        every_k_steps: as for `ProcessTensors`.
        max_elements: how many elements of an array are shown.

    Raises:
        ConfigError, TowerError: as `ProcessTensors`; or if `max_elements` is not positive.

    Example:
        ```python
        TensorPrinter(["cost", "learning_rate"], every_k_steps=50)  # step 50: cost = 0.1432, learning_rate = 0.001
        ```
    """

    def __init__(self, tensors: Any, *, every_k_steps: int = 1, max_elements: int = 20) -> None:
        super().__init__(tensors, every_k_steps)
        if max_elements < 1:
            raise ConfigError(f"TensorPrinter(max_elements={max_elements!r}): expected a positive whole number.")
        self._max_elements = max_elements

    def look(self, values: dict[str, Any]) -> None:
        """Log the values."""
        shown = ", ".join(f"{name} = {self._show(value)}" for name, value in values.items())
        logger.info("step %d: %s", self.global_step, shown)

    def _show(self, value: Any) -> str:
        array = np.asarray(value)
        if array.ndim == 0 and np.issubdtype(array.dtype, np.floating):
            return f"{array.item():.6g}"
        return " ".join(np.array2string(array, precision=4, threshold=self._max_elements, edgeitems=2).split())


class DumpTensors(LooksAtTensors):
    """Writes the values of tensors to ``DumpTensor-<step>.npz`` in the directory of the run, in each step or every
    k-th.

    When it runs and where it works is as for `ProcessTensors`. It costs that, and the time in which the file is
    written, for which the training waits; so choose a period, or the steps, by `EnableCallbackIf`.

    ``numpy.load(path)`` gives the values by their names (without ``:0``), as they have been named here. A type of
    numbers that NumPy does not have, such as bfloat16, becomes ``float32``, and strings become bytes of one length.

    Args:
        tensors: as for `ProcessTensors`.
        every_k_steps: as for `ProcessTensors`.

    Raises:
        ConfigError, TowerError: as `ProcessTensors`; or, when the graph is set up, if the training has no `run_dir`.

    Example:
        ```python
        DumpTensors(["image", "gradients/conv0/W"], every_k_steps=1000)
        ```
    """

    def __init__(self, tensors: Any, *, every_k_steps: int = 1) -> None:
        super().__init__(tensors, every_k_steps)

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Find the tensors, and where to write.

        Raises:
            ConfigError: if there is no directory, or a tensor cannot be fetched along with a step.
            TowerError: if there is no tensor of a name.
        """
        file_in_run_dir(self)
        super().setup_graph(trainer)

    def look(self, values: dict[str, Any]) -> None:
        """Write the file."""
        content = io.BytesIO()
        # As `numpy.savez_compressed` does it, which takes no name that is one of its arguments, such as "file".
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, value in values.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, _storable(value), allow_pickle=False)
        write_file(file_in_run_dir(self, f"DumpTensor-{self.global_step}.npz"), content.getvalue())


def _storable(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype == object:
        return array.astype(np.bytes_)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


def labelled_tensors(callback: Any, trainer: TrainerProtocol, wanted: Sequence[Any]) -> dict[str, Any]:
    """Return tensors by the names that they are shown with: as they are called inside the tower, without ``:0``.

    Args:
        callback: who looks for them.
        trainer: whose graph they are in.
        wanted: names, in the main training tower or else in the graph, or tensors.

    Raises:
        ConfigError: if something is neither, or is a variable.
        TowerError, ConfigError: if there is no tensor of a name, see `tpk.find_tensor`.
    """
    found = {}
    for each in wanted:
        if isinstance(each, str):
            tensor, name = find_tensor(trainer, each), each
        elif isinstance(each, tf.Tensor) and each.graph is trainer.graph:
            tensor, name = each, name_in_tower(each.name)
        else:
            raise ConfigError(
                f"{type(callback).__name__}: expected the name of a tensor, or a tensor of the trainer's graph, got "
                f"{each!r}. To look at a variable, make a tensor of it in the tower: tf.identity(w, name='w_before')."
            )
        if tensor.dtype == tf.resource or is_reference(tensor):
            raise ConfigError(
                f"{type(callback).__name__}: {tensor.name!r} is a variable (or a handle), whose value within a step "
                "may be that before the update or that after it. Make a tensor of it in the tower, and name that: "
                "tf.identity(w, name='w_before')."
            )
        found[name.removesuffix(":0")] = tensor
    return found


def file_in_run_dir(callback: Callback, name: str = "") -> Path:
    """Return the path of a file in the directory of the run that a callback belongs to, or that directory.

    Raises:
        ConfigError: if the run has none.
    """
    run_dir = callback.trainer.run_dir
    if run_dir is None:
        raise ConfigError(
            f"{type(callback).__name__} writes into the directory of the run, but this run has none (run_dir is None). "
            "Give the training a run_dir."
        )
    return Path(run_dir) / name


def write_file(path: Path, content: bytes) -> None:
    """Write a file of a run, whole or not at all."""
    replace_file(path, content, path.with_name(f".{path.name}.part"))


def check_period(callback: str, every_k_steps: Any) -> int:
    """Return `every_k_steps`.

    Raises:
        ConfigError: if it is no positive int.
    """
    if isinstance(every_k_steps, bool) or not isinstance(every_k_steps, int) or every_k_steps < 1:
        raise ConfigError(f"{callback}(every_k_steps={every_k_steps!r}): expected a positive whole number.")
    return every_k_steps


class GradientHistogram(LooksAtTensors):
    """Reports how the gradients are distributed and how large they are: at the end of each epoch, or every k steps.

    To the monitors, for each variable that is trained:

    - ``gradients/<variable>``: a histogram;
    - ``gradients/<variable>/norm``: the Euclidean norm, a scalar;
    - ``gradients/global_norm``: that of all gradients of the cost together, as `tf.linalg.global_norm` has it.

    Of several costs each has its own, with its name: ``gradients/<cost>/<variable>``. They are the gradients of the
    main training tower as they were computed: before they are averaged with those of other towers, clipped, or
    processed otherwise. A sparse gradient is taken for its values.

    - **When it runs**: along with the last step of each epoch, or each k-th step. Of an objective that is not minimized
      in that step, along with the next one in which it is.
    - **What it costs**: in these steps all gradients are copied out of the graph, which takes the memory of the weights
      once more. In all others nothing.
    - **Where it works**: on every strategy; it looks at the main training tower of the chief. It knows the gradients
      that `tpk.graph.gradients.compute_gradients` computed, as all trainers with towers compute theirs.

    Args:
        every_k_steps: report in steps whose number is a multiple of it; by default in the last step of each epoch.
            Where one run makes several steps, in the last step of the run that passes such a one.

    Raises:
        ConfigError: if `every_k_steps` is not positive; when the graph is set up, if the trainer's gradients are not
            known.

    Example:
        ```python
        callbacks=[tpk.callbacks.GradientHistogram(every_k_steps=500)]
        ```
    """

    def __init__(self, every_k_steps: int | None = None) -> None:
        super().__init__("gradients", 1 if every_k_steps is None else every_k_steps)
        self._at_epoch_end = every_k_steps is None
        # The cost and the variable of each gradient.
        self._costs: dict[str, str] = {}

    def find_tensors(self, trainer: TrainerProtocol) -> list[RunTensor]:
        """Return the gradients of the main training tower.

        Raises:
            ConfigError: if none are known.
        """
        first: dict[tuple[str, str], Any] = {}
        for record in recorded_gradients(trainer.graph):
            cost = name_in_tower(record.cost.name).removesuffix(":0")
            first.setdefault((cost, name_in_tower(record.variable)), record.gradient)
        if not first:
            raise ConfigError(
                f"GradientHistogram does not know the gradients of a {type(trainer).__name__}. Compute them by "
                "tpk.graph.gradients.compute_gradients."
            )
        has_several = len({cost for cost, _ in first}) > 1
        found = []
        for (cost, variable), gradient in first.items():
            prefix = f"gradients/{cost}" if has_several else "gradients"
            self._costs[f"{prefix}/{variable}"] = prefix
            found.append(RunTensor(f"{prefix}/{variable}", gradient, [gradient.op]))
        return found

    def next_due(self, step: int) -> float:
        """Return the number of the first step to look at after `step`."""
        if not self._at_epoch_end:
            return super().next_due(step)
        end = self._offset - 1  # of an epoch
        return end + ((step - end) // self._steps_per_epoch + 1) * self._steps_per_epoch

    def begin_step(self) -> None:
        """Go on waiting for what is still to come; if nothing is, wait for all gradients."""
        if not self._missing:
            self._missing = set(self._tensors)

    def take(self, values: dict[str, Any]) -> None:
        """Look at the gradients of a run at once: those of other objectives come with runs of their own."""
        self.look(values)

    def look(self, values: dict[str, Any]) -> None:
        """Report gradients."""
        monitors = self.trainer.monitors
        squares: dict[str, float] = {}
        for name, value in values.items():
            gradient = np.asarray(value, np.float64)
            if gradient.size:
                monitors.put_histogram(name, gradient)
            square = float(np.sum(np.square(gradient)))
            monitors.put_scalar(f"{name}/norm", np.sqrt(square))
            squares[self._costs[name]] = squares.get(self._costs[name], 0.0) + square
        for prefix, square in squares.items():
            monitors.put_scalar(f"{prefix}/global_norm", np.sqrt(square))

    def state_dict(self) -> dict[str, Any]:
        """Return which step is the next to look at, and what is still to come."""
        return {**super().state_dict(), "missing": sorted(self._missing)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned."""
        super().load_state_dict(state)
        self._missing = set(state["missing"]) & self._tensors.keys()
