"""Profiler of steps: Chrome traces, and the profile of TensorBoard."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tpk.callbacks.inspection.tensors import LooksAtSteps, file_in_run_dir, write_file
from tpk.errors import ConfigError
from tpk.tf_internals import chrome_trace

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

logger = logging.getLogger(__name__)

SessionRunArgs = tf.compat.v1.train.SessionRunArgs
RunOptions = tf.compat.v1.RunOptions


class GraphProfiler(LooksAtSteps):
    """Profiles chosen steps: where the time goes, op by op.

    Of each of these steps it writes into the directory of the run

    - ``chrome-trace-<step>.json`` (`dump_tracing`): the ops of the run on each device; open it at ``chrome://tracing``
      or https://ui.perfetto.dev;
    - ``plugins/profile/step-<step>/`` (`dump_profile`): the profile that TensorBoard shows, which has the threads of
      the process and the kernels of GPUs besides; it takes the package ``tensorboard-plugin-profile`` (or ``xprof``) to
      see;
    - ``runmetadata-<step>.pb`` (`dump_metadata`): the serialized `tf.compat.v1.RunMetadata`;
    - an event with the same (`dump_event`), of which TensorBoard's page of the graph shows times of nodes as
      ``step <step>``.

    A step that runs the session several times has as many of each; from the second on, they are called ``<step>-run2``
    and so on.

    TensorFlow has one profiler at a time. With `dump_profile` that is taken, and what comes from the metadata of the
    run has the ops as the host sees them, also those that it gives to a GPU; for the times of GPU kernels in the Chrome
    trace, set `dump_profile` to False. Nothing else may profile the same steps, such as
    `tf.compat.v1.train.ProfilerHook`.

    - **When it runs**: around the runs of the chosen steps. Where one run makes several steps (`steps_per_run`), the
      run that has such a step is profiled: by TensorBoard's profile all of it, by the others its last step.
    - **What it costs**: a profiled step takes several times as long, and the training waits while files are written.
      All other steps cost the comparison of two numbers (`tests/benchmarks/profiler_overhead.py`).
    - **Where it works**: on every strategy; it profiles the chief. With ``async``, the Chrome trace has the main tower
      alone.

    Args:
        steps: the numbers of the steps, as `global_step` counts them: the first is 1. It makes sense to leave out the
            first ones, in which TensorFlow gets ready. None is every step: of those that `EnableCallbackIf` chooses.
        dump_tracing: write a Chrome trace.
        dump_profile: write TensorBoard's profile.
        dump_metadata: write the metadata of the run.
        dump_event: report the metadata of the run to the monitors, as an event.

    Raises:
        ConfigError: if an option has a value that it cannot have, or nothing is to be written; when the graph is set
            up, if the training has no `run_dir`; in a step, if something else profiles.

    Example:
        ```python
        callbacks=[tpk.GraphProfiler(steps=range(100, 103))]
        ```
    """

    def __init__(
        self,
        steps: int | Iterable[int] | None = 10,
        *,
        dump_tracing: bool = True,
        dump_profile: bool = True,
        dump_metadata: bool = False,
        dump_event: bool = False,
    ) -> None:
        super().__init__()
        self._steps = None if steps is None else _as_steps(steps)
        self._dump_tracing = dump_tracing
        self._dump_profile = dump_profile
        self._dump_metadata = dump_metadata
        self._dump_event = dump_event
        self._wants_metadata = dump_tracing or dump_metadata or dump_event
        if not (self._wants_metadata or dump_profile):
            raise ConfigError("GraphProfiler: there is nothing to write. Set dump_tracing or dump_profile.")
        self._fetches: Any = None
        self._request: Any = None
        # The step that is or was looked at, and the number of its run.
        self._step = 0
        self._run = 0
        self._is_profiling = False
        self._profile: _Profile | None = None

    def next_due(self, step: int) -> float:
        """Return the number of the first step to look at after `step`."""
        if self._steps is None:
            return step + 1
        position = bisect_right(self._steps, step)
        return self._steps[position] if position < len(self._steps) else math.inf

    def setup_graph(self, trainer: TrainerProtocol) -> None:
        """Get ready to profile.

        Raises:
            ConfigError: if there is no directory to write to.
        """
        file_in_run_dir(self)
        if trainer.loop.steps_per_run > 1:
            # Of a run that makes several steps, only the last one, from which something is fetched, has metadata.
            with tf.device("/cpu:0"):
                self._fetches = tf.constant(0, name="profiled_step")

    def before_train(self, trainer: TrainerProtocol) -> None:
        """Find out which step is the first to look at."""
        super().before_train(trainer)
        if self._wants_metadata:
            # A full trace is an error while something else profiles, but for that of TensorFlow's servers, which have
            # no other.
            is_taken = self._dump_profile and not trainer.sess.sess_str
            level = RunOptions.SOFTWARE_TRACE if is_taken else RunOptions.FULL_TRACE
            self._request = SessionRunArgs(self._fetches, options=RunOptions(trace_level=level))
        if self._steps is not None and self.due_at == math.inf:
            logger.warning(
                "GraphProfiler: the last of its steps, %d, is over already: %d steps have completed",
                self._steps[-1],
                trainer.global_step,
            )
        if self._wants_metadata and self._dump_profile and _has_gpu(trainer.sess):
            logger.info(
                "GraphProfiler: the kernels of GPUs are in TensorBoard's profile; to have them in the Chrome trace, "
                "set dump_profile=False"
            )

    def before_run(self, run_context: Any) -> Any:
        """Begin to profile, if the step is one to look at."""
        step = self.step_under_way
        if step < self.due_at:
            return None
        if step != self._step:
            if self._step >= self.due_at:  # That has been looked at; a step is the same one in each of its runs.
                self.due_at = self.next_due(self._step)
                if step < self.due_at:
                    return None
            self._step, self._run = step, 0
        self._run += 1
        self._is_profiling = True
        if self._dump_profile:
            self._profile = _Profile(file_in_run_dir(self), step)
        return self._request

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Write the profile of the run."""
        if not self._is_profiling:
            return
        self._is_profiling = False
        name = f"{self._step}" if self._run == 1 else f"{self._step}-run{self._run}"
        written = []
        if self._profile is not None:
            written.append(self._profile.finish(f"step-{name}"))
            self._profile = None
        metadata = run_values.run_metadata
        if self._dump_tracing:
            written.append(file_in_run_dir(self, f"chrome-trace-{name}.json"))
            write_file(written[-1], chrome_trace(metadata.step_stats).encode())
        if self._dump_metadata:
            written.append(file_in_run_dir(self, f"runmetadata-{name}.pb"))
            write_file(written[-1], metadata.SerializeToString())
        if self._dump_event:
            event = tf.compat.v1.Event()
            event.tagged_run_metadata.tag = f"step {name}"
            event.tagged_run_metadata.run_metadata = metadata.SerializeToString()
            self.trainer.monitors.put_event(event)
        logger.info("profile of step %s: %s", name, ", ".join(map(str, written)) or "in the monitors")

    def after_train(self, trainer: TrainerProtocol) -> None:
        """Stop to profile a run that has failed."""
        if self._profile is not None:
            self._profile.cancel()
            self._profile = None


class _Profile:
    """A profile of TensorBoard, from its making on."""

    def __init__(self, run_dir: Path, step: int) -> None:
        self._run_dir = run_dir
        # TensorFlow names a profile by the second, so that of the next step might have the same place.
        self._folder = Path(tempfile.mkdtemp(prefix=".profile-", dir=run_dir))
        try:
            tf.profiler.experimental.start(str(self._folder))
        except tf.errors.AlreadyExistsError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ConfigError(
                f"GraphProfiler cannot profile step {step}: something else profiles it already, and TensorFlow has one "
                "profiler at a time. Stop that, or set dump_profile=False."
            ) from error
        self._trace = tf.profiler.experimental.Trace("train", step_num=step, _r=1)
        self._trace.__enter__()

    def finish(self, name: str) -> Path:
        """Write it, and return where it is."""
        self._trace.__exit__(None, None, None)
        try:
            tf.profiler.experimental.stop()
            place = self._run_dir / "plugins" / "profile" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():  # Of an attempt at this run that did not come to a checkpoint after it.
                shutil.rmtree(place)
            (written,) = (self._folder / "plugins" / "profile").iterdir()
            written.rename(place)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return place

    def cancel(self) -> None:
        """Give it up."""
        self._trace.__exit__(None, None, None)
        try:
            tf.profiler.experimental.stop(save=False)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def _as_steps(steps: Any) -> list[int]:
    chosen = [steps] if isinstance(steps, int) else list(steps) if isinstance(steps, Iterable) else []
    if not chosen or any(isinstance(step, bool) or not isinstance(step, int) or step < 1 for step in chosen):
        raise ConfigError(
            f"GraphProfiler(steps={steps!r}): expected numbers of steps, from 1 on, or None for every step."
        )
    return sorted(set(chosen))


def _has_gpu(sess: Any) -> bool:
    return any(device.device_type == "GPU" for device in sess.list_devices())
