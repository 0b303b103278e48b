"""A profiler of steps that writes Chrome traces and TensorBoard profiles."""

from __future__ import annotations

import logging
import math
import shutil
import tempfile
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf

import tpk
from tpk.argument_checks import check_at_least
from tpk.callbacks.inspection.tensors import LooksAtSteps
from tpk.durable_files import replace_file
from tpk.errors import ConfigError
from tpk.plugin.callback import in_run_dir
from tpk.tf_internals import chrome_trace

logger = logging.getLogger(__name__)

SessionRunArgs = tf.compat.v1.train.SessionRunArgs
RunOptions = tf.compat.v1.RunOptions


class GraphProfiler(LooksAtSteps):
    """Profiles chosen steps: how long each op takes.

    For each of these steps it writes into the run directory

    - ``chrome-trace-<step>.json`` (`dump_tracing`): the ops of the run on each device, to be opened at
      ``chrome://tracing`` or https://ui.perfetto.dev;
    - ``plugins/profile/step-<step>/`` (`dump_profile`): a profile for TensorBoard, which also has the threads of the
      process and the kernels of GPUs. TensorBoard needs the package ``tensorboard-plugin-profile`` (or ``xprof``);
    - ``runmetadata-<step>.pb`` (`dump_metadata`): the serialized `tf.compat.v1.RunMetadata`;
    - an event with the same metadata (`dump_event`): TensorBoard's graph page shows the times of nodes as
      ``step <step>``.

    If a step runs the session several times, it writes each of these for each run; the names from the second run on are
    ``<step>-run2`` and so on.

    TensorFlow has only one profiler at a time. With `dump_profile` it is in use, and the metadata of the run only has
    the ops as seen by the host, including those launched on a GPU. For the times of GPU kernels in the Chrome trace,
    set `dump_profile` to False. No other profiler, such as `tf.compat.v1.train.ProfilerHook`, may run in the same
    steps.

    - **When it runs**: around the runs of the chosen steps. If one run makes several steps (`steps_per_run`), the run
      with the chosen step is profiled: all of it in the TensorBoard profile, only its last step in the other files.
    - **What it costs**: a profiled step takes several times as long, and the training waits while files are written.
      Other steps cost the comparison of two numbers (`tests/benchmarks/profiler_overhead.py`).
    - **Where it works**: on every strategy; it profiles the chief. With ``async``, the Chrome trace only has the main
      tower.

    Args:
        steps: the number or numbers of the steps, as counted by `global_step`, from 1 on. Leave out the first steps, in
            which TensorFlow warms up. None profiles every step, or every step chosen by `EnableCallbackIf`.
        dump_tracing: whether to write a Chrome trace.
        dump_profile: whether to write a TensorBoard profile.
        dump_metadata: whether to write the metadata of the run.
        dump_event: whether to report the metadata of the run to the monitors as an event.

    Raises:
        ConfigError: if an option is invalid, or nothing is to be written; when the graph is set up, if the training has
            no `run_dir`; in a step, if another profiler is running.

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
        self._steps = None if steps is None else sorted(set(steps if isinstance(steps, Iterable) else [steps]))
        for step in self._steps or ():
            check_at_least(self, 1, steps=step)
        self._dump_tracing = dump_tracing
        self._dump_profile = dump_profile
        self._dump_metadata = dump_metadata
        self._dump_event = dump_event
        self._needs_metadata = dump_tracing or dump_metadata or dump_event
        if self._steps == [] or not (self._needs_metadata or dump_profile):
            raise ConfigError("GraphProfiler: nothing to write. Choose a step, and set dump_tracing or dump_profile.")
        self._fetches: Any = None
        self._request: Any = None
        # The last profiled step, and the number of its run.
        self._step = 0
        self._run = 0
        self._is_profiling = False
        self._profile: _Profile | None = None

    def next_due(self, step: int) -> float:
        """Return the number of the next step to profile."""
        if self._steps is None:
            return step + 1
        position = bisect_right(self._steps, step)
        return self._steps[position] if position < len(self._steps) else math.inf

    def setup_graph(self, trainer: tpk.Trainer) -> None:
        """Check that there is a run directory."""
        in_run_dir(self)
        if trainer.loop.steps_per_run > 1:
            # If a run makes several steps, only the last one has metadata, and only if it fetches something.
            with tf.device("/cpu:0"):
                self._fetches = tf.constant(0, name="profiled_step")

    def before_train(self, trainer: tpk.Trainer) -> None:
        """Find the first step to profile."""
        super().before_train(trainer)
        if self._needs_metadata:
            # A full trace is an error while another profiler is running. TensorFlow's servers have no other level.
            is_profiled = self._dump_profile and not trainer.sess.sess_str
            level = RunOptions.SOFTWARE_TRACE if is_profiled else RunOptions.FULL_TRACE
            self._request = SessionRunArgs(self._fetches, options=RunOptions(trace_level=level))
        if self._steps is not None and self.due_at == math.inf:
            logger.warning(
                "GraphProfiler profiles nothing: its last step is %d, but %d steps have completed already",
                self._steps[-1],
                trainer.global_step,
            )

    def before_run(self, run_context: Any) -> Any:
        """Start to profile, if the step is chosen."""
        step = self.step_under_way
        if step < self.due_at:
            return None
        if step != self._step:
            if self._step >= self.due_at:  # All runs of that step are over.
                self.due_at = self.next_due(self._step)
                if step < self.due_at:
                    return None
            self._step, self._run = step, 0
        self._run += 1
        self._is_profiling = True
        if self._dump_profile:
            self._profile = _Profile(in_run_dir(self), step)
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
            written.append(in_run_dir(self, f"chrome-trace-{name}.json"))
            replace_file(written[-1], chrome_trace(metadata.step_stats).encode())
        if self._dump_metadata:
            written.append(in_run_dir(self, f"runmetadata-{name}.pb"))
            replace_file(written[-1], metadata.SerializeToString())
        if self._dump_event:
            event = tf.compat.v1.Event()
            event.tagged_run_metadata.tag = f"step {name}"
            event.tagged_run_metadata.run_metadata = metadata.SerializeToString()
            self.trainer.monitors.put_event(event)
        logger.info("profile of step %s: %s", name, ", ".join(map(str, written)) or "in the monitors")

    def after_train(self, trainer: tpk.Trainer) -> None:
        """Stop profiling after a failed run."""
        if self._profile is not None:
            self._profile.cancel()
            self._profile = None


class _Profile:
    """A TensorBoard profile that is being taken."""

    def __init__(self, run_dir: Path, step: int) -> None:
        self._run_dir = run_dir
        # TensorFlow names a profile by the time in seconds, so the next step could overwrite it.
        self._folder = Path(tempfile.mkdtemp(prefix=".profile-", dir=run_dir))
        try:
            tf.profiler.experimental.start(str(self._folder))
        except tf.errors.AlreadyExistsError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise ConfigError(
                f"GraphProfiler cannot profile step {step}: TensorFlow has only one profiler, already running. "
                "Stop it, or set dump_profile=False."
            ) from error
        self._trace = tf.profiler.experimental.Trace("train", step_num=step, _r=1)
        self._trace.__enter__()

    def finish(self, name: str) -> Path:
        """Write the profile and return its path."""
        self._trace.__exit__(None, None, None)
        try:
            tf.profiler.experimental.stop()
            place = self._run_dir / "plugins" / "profile" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():  # From before a resume.
                shutil.rmtree(place)
            (written,) = (self._folder / "plugins" / "profile").iterdir()
            written.rename(place)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return place

    def cancel(self) -> None:
        """Discard the profile."""
        self._trace.__exit__(None, None, None)
        try:
            tf.profiler.experimental.stop(save=False)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
