"""Callbacks that print the values of tensors in steps, save them to files, or pass them to a function."""

from __future__ import annotations

import io
import logging
import math
import zipfile
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least
from tpk.callbacks.run_tensors import RunCompanions, RunTensor, find_tensor, run_tensors
from tpk.durable_files import replace_file
from tpk.errors import ConfigError
from tpk.graph.gradients import recorded_gradients
from tpk.graph.variables import name_in_tower
from tpk.plugin.callback import Callback, in_run_dir
from tpk.plugin.progress import Progress
from tpk.tf_internals import is_reference

logger = logging.getLogger(__name__)

_MAX_ELEMENTS = 20


class LooksAtSteps(Callback, ABC):
    """Base of callbacks that look at some steps. The other steps cost one comparison of two numbers.

    The number of a step is the value of `global_step` after it, in each of its runs of the session. If one run makes
    several steps, the run has the number of its last step, and is looked at if one of its steps is due.

    A subclass defines `next_due`, asks in ``before_run`` whether `step_under_way` is due, and updates `due_at`.

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

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Find out how steps are numbered, and the first step to look at."""
        self._progress, self._steps_per_epoch = trainer.loop.progress, trainer.loop.steps_per_epoch
        # If the training was resumed within an epoch, this epoch is under way already.
        done = trainer.local_step + 1 if trainer.epoch_num == trainer.loop.starting_epoch else 0
        self._offset = trainer.global_step - done - trainer.loop.starting_epoch * self._steps_per_epoch + 1
        self.due_at = self.next_due(trainer.global_step)

    @property
    def step_under_way(self) -> int:
        """The number of the step under way: the value of `global_step` after it."""
        # In the second run of a step, `global_step` counts the step already. And no hook of the epoch could help, since
        # it is not called while `EnableCallbackIf` disables the callback.
        progress = self._progress
        return self._offset + progress.epoch_num * self._steps_per_epoch + progress.local_step


class LooksAtTensors(LooksAtSteps):
    """Base of callbacks that look at the values of tensors, fetched in the runs of the step to which they belong.

    So nothing is computed twice, and no data is taken. If a step runs the session several times, the first run that
    computes a tensor gives its value. If a due step does not compute all of the tensors, because objectives are
    minimized in turn for example, the next step that does is looked at.

    Args:
        tensors: the name of a tensor in the main training tower, or else in the graph; a tensor; or a list of these.
        every_k_steps: look at steps whose number is a multiple of it; if one run makes several steps, at the last step
            of a run that includes such a step.

    Raises:
        ConfigError: if an option is invalid; and, when the graph is set up, if a tensor cannot be fetched.
        TowerError: when the graph is set up, if no tensor has the name; the message lists the nearest names.
    """

    state_attributes: ClassVar[Sequence[str]] = ("due_at",)

    def __init__(self, tensors: Any, *, every_k_steps: int = 1) -> None:
        super().__init__()
        self._wanted = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        if not self._wanted:
            raise ConfigError(f"{type(self).__name__}([]): expected at least one tensor.")
        check_at_least(self, 1, every_k_steps=every_k_steps)
        self._every_k_steps = every_k_steps
        self._tensors: dict[str, Any] = {}
        self._companions: RunCompanions
        # The number of the last step that was due, and the values from its runs so far.
        self._step = 0
        self._values: dict[str, Any] = {}

    @abstractmethod
    def look(self, values: dict[str, Any]) -> None:
        """Process the values of a step by the names of the tensors."""

    def find_tensors(self, trainer: tpk.Trainer) -> list[RunTensor]:
        """Return the tensors to fetch."""
        return run_tensors(trainer.graph, [self._find_tensor(trainer, each) for each in self._wanted])

    def _find_tensor(self, trainer: tpk.Trainer, wanted: Any) -> tuple[str, Any]:
        """Return a tensor with its name inside the tower, without ``:0``."""
        owner = type(self).__name__
        if isinstance(wanted, str):
            tensor, name = find_tensor(trainer, wanted), wanted
        elif isinstance(wanted, tf.Tensor) and wanted.graph is trainer.graph:
            tensor, name = wanted, name_in_tower(wanted.name)
        else:
            raise ConfigError(
                f"{owner}: expected the name of a tensor, or a tensor of the trainer's graph, got {wanted!r}. To look "
                "at a variable, copy it in the tower: tf.identity(w, name='w_before')."
            )
        if tensor.dtype == tf.resource or is_reference(tensor):
            raise ConfigError(
                f"{owner}: {tensor.name!r} is a variable (or a handle), which a step may read before or after its "
                "update. Copy it in the tower, and name the copy: tf.identity(w, name='w_before')."
            )
        return name.removesuffix(":0"), tensor

    def next_due(self, step: int) -> float:
        """Return the next multiple of `every_k_steps`."""
        return (step // self._every_k_steps + 1) * self._every_k_steps

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the tensors, and the runs to which they belong."""
        found = self.find_tensors(trainer)
        self._tensors = {each.name: each.tensor for each in found}
        self._companions = RunCompanions(trainer, found, lambda named, *_: dict(named) or None)
        if self._companions.left_out:
            left_out = ", ".join(each.name for each in self._companions.left_out)
            raise ConfigError(
                f"{type(self).__name__}: no step takes the data on which {left_out} depends, so it cannot be fetched "
                "along with one. Name a tensor of the main training tower."
            )

    def before_run(self, run_context: Any) -> Any:
        """Return the tensors that belong to the run, if the step is due."""
        step = self.step_under_way
        if step < self.due_at:
            return None
        if step != self._step:
            self._step, self._values = step, {}
        return self._companions.request_for(run_context.original_args.fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Take the values of the run."""
        results = run_values.results
        if results is not None:
            # A run that belongs to several train ops has a dict for each of them.
            self.take(dict(ChainMap(*results)) if isinstance(results, list) else results)

    def take(self, values: dict[str, Any]) -> None:
        """Collect the values of a run; when all have arrived, look at them."""
        self._values = {**values, **self._values}
        if len(self._values) == len(self._tensors):
            self.due_at = self.next_due(self.global_step)
            self.look({name: self._values[name] for name in self._tensors})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the next step to look at, unless it comes earlier now."""
        self.due_at = min(self.due_at, state["due_at"])


class ProcessTensors(LooksAtTensors):
    """Calls a function with the values of tensors in each step, or in every k-th step.

    - **When it runs**: along with the step; the function is called after the run.
    - **What it costs**: in the steps that it looks at, the values are copied out of the graph. If one run makes several
      steps (`steps_per_run`), they are the values of its last step.
    - **Where it works**: on every strategy; it looks at the main training tower of the chief. Set `chief_only` to False
      to use it in every process.

    Args:
        tensors: the names of tensors in the main training tower, with or without ``:0``, or else in the graph; tensors;
            or one of these. Variables are not allowed, because a step may read them before or after their update.
        fn: takes the values as arrays, in this order; may raise `StopTraining`.
        every_k_steps: look at steps whose number (`global_step` after the step) is a multiple of it.

    Raises:
        ConfigError: if an option is invalid; and, when the graph is set up, if a tensor cannot be fetched.
        TowerError: when the graph is set up, if no tensor has the name; the message lists the nearest names.

    Example:
        ```python
        ProcessTensors(["cost", "logits"], lambda cost, logits: print(cost, logits.max()), every_k_steps=100)
        ```
    """

    def __init__(self, tensors: Any, fn: Callable[..., None], *, every_k_steps: int = 1) -> None:
        super().__init__(tensors, every_k_steps=every_k_steps)
        if not callable(fn):
            raise ConfigError(f"ProcessTensors(fn={fn!r}): expected a function that takes the values of the tensors.")
        self._fn = fn

    def look(self, values: dict[str, Any]) -> None:
        """Call the function."""
        self._fn(*values.values())


class TensorPrinter(LooksAtTensors):
    """Logs the values of tensors in each step, or in every k-th step.

    It runs like `ProcessTensors`. Arrays of more than 20 elements are shortened.

    Args:
        tensors: see `ProcessTensors`.
        every_k_steps: see `ProcessTensors`.

    Raises:
        ConfigError, TowerError: see `ProcessTensors`.

    Example:
        ```python
        TensorPrinter(["cost", "learning_rate"], every_k_steps=50)  # step 50: cost = 0.1432, learning_rate = 0.001
        ```
    """

    def look(self, values: dict[str, Any]) -> None:
        """Log the values."""
        shown = ", ".join(f"{name} = {_shown(value)}" for name, value in values.items())
        logger.info("step %d: %s", self.global_step, shown)


def _shown(value: Any) -> str:
    array = np.asarray(value)
    if array.ndim == 0 and np.issubdtype(array.dtype, np.floating):
        return f"{array.item():.6g}"
    return " ".join(np.array2string(array, precision=4, threshold=_MAX_ELEMENTS, edgeitems=2).split())


class DumpTensors(LooksAtTensors):
    """Saves the values of tensors to ``DumpTensor-<step>.npz`` in the run directory, in each or every k-th step.

    It runs like `ProcessTensors`, but the training also waits while the file is written; so set a period, or choose
    steps by `EnableCallbackIf`.

    ``numpy.load(path)`` returns the values by the names given here, without ``:0``. Types that NumPy lacks, such as
    bfloat16, become ``float32``, and strings become bytes of a fixed length.

    Args:
        tensors: see `ProcessTensors`.
        every_k_steps: see `ProcessTensors`.

    Raises:
        ConfigError, TowerError: see `ProcessTensors`; also, when the graph is set up, if the training has no `run_dir`.

    Example:
        ```python
        DumpTensors(["image", "gradients/conv0/W"], every_k_steps=1000)
        ```
    """

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Find the tensors, and check that there is a run directory."""
        in_run_dir(self)
        super().setup_graph(trainer)

    def look(self, values: dict[str, Any]) -> None:
        """Write the file."""
        content = io.BytesIO()
        # Like `numpy.savez_compressed`, except that a tensor may have the name of an argument, such as "file".
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, value in values.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, _storable(value), allow_pickle=False)
        replace_file(in_run_dir(self, f"DumpTensor-{self.global_step}.npz"), content.getvalue())


def _storable(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype == object:
        return array.astype(np.bytes_)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


class GradientHistogram(LooksAtTensors):
    """Reports histograms and norms of the gradients, at the end of each epoch or every k steps.

    For each variable that is trained, the monitors get

    - ``gradients/<variable>``: a histogram;
    - ``gradients/<variable>/norm``: the Euclidean norm, a scalar;

    and ``gradients/global_norm``, the norm of all gradients of the cost (see `tf.linalg.global_norm`). If there are
    several costs, their names are part of these: ``gradients/<cost>/<variable>``. The main training tower computes the
    gradients; they are reported before they are averaged over towers, clipped, or processed otherwise. For a sparse
    gradient, only its values count.

    - **When it runs**: along with the last step of each epoch, or each k-th step. An objective that is not minimized in
      that step is reported in the next step that minimizes it.
    - **What it costs**: in these steps all gradients are copied out of the graph, which takes as much memory as the
      weights. In other steps nothing.
    - **Where it works**: on every strategy; it looks at the main training tower of the chief. It knows the gradients
      computed by `tpk.graph.gradients.compute_gradients`, as in all trainers with towers.

    Args:
        every_k_steps: report in steps whose number is a multiple of it; by default in the last step of each epoch. If
            one run makes several steps, in the last step of a run that includes such a step.

    Raises:
        ConfigError: if `every_k_steps` is not positive; when the graph is set up, if the gradients are unknown.

    Example:
        ```python
        callbacks=[tpk.callbacks.GradientHistogram(every_k_steps=500)]
        ```
    """

    state_attributes = ("_missing",)

    def __init__(self, every_k_steps: int | None = None) -> None:
        super().__init__("gradients", every_k_steps=1 if every_k_steps is None else every_k_steps)
        self._at_epoch_end = every_k_steps is None
        # The prefix of the names of each gradient's cost.
        self._prefixes: dict[str, str] = {}
        self._missing: list[str] = []

    def find_tensors(self, trainer: tpk.Trainer) -> list[RunTensor]:
        """Return the gradients of the main training tower."""
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
            self._prefixes[f"{prefix}/{variable}"] = prefix
            found.append(RunTensor(f"{prefix}/{variable}", gradient, [gradient.op]))
        return found

    def next_due(self, step: int) -> float:
        """Return the next multiple of `every_k_steps`, or the last step of the epoch."""
        if not self._at_epoch_end:
            return super().next_due(step)
        end = self._offset - 1  # The last step of some epoch.
        return end + ((step - end) // self._steps_per_epoch + 1) * self._steps_per_epoch

    def take(self, values: dict[str, Any]) -> None:
        """Report the gradients of a run at once. Other objectives may have their turn in later steps."""
        missing = set(self._missing or self._tensors)
        new = {name: value for name, value in values.items() if name in missing}
        self._missing = sorted(missing - new.keys())
        if not self._missing:
            self.due_at = self.next_due(self.global_step)
        self.look(new)

    def look(self, values: dict[str, Any]) -> None:
        """Report the gradients."""
        monitors = self.trainer.monitors
        squares: dict[str, float] = {}
        for name, value in values.items():
            gradient = np.asarray(value, np.float64)
            if gradient.size:
                monitors.put_histogram(name, gradient)
            square = float(np.sum(np.square(gradient)))
            monitors.put_scalar(f"{name}/norm", np.sqrt(square))
            squares[self._prefixes[name]] = squares.get(self._prefixes[name], 0.0) + square
        for prefix, square in squares.items():
            monitors.put_scalar(f"{prefix}/global_norm", np.sqrt(square))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the next step to look at, and the gradients that are still missing in the last one."""
        super().load_state_dict(state)
        self._missing = [name for name in state["_missing"] if name in self._tensors]
