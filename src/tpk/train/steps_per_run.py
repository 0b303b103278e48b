"""Many steps in one run of the session: ``steps_per_run=k``, which Keras calls ``steps_per_execution``.

Each call of TensorFlow has a price, which is most of the time of a small model's step. With ``steps_per_run=k``, one
`Session.run` makes k steps, as a loop in the graph; see `tpk.graph.loops`. What they compute is the same, to the
bit: the order of the data, the draws of `tpk.graph.random`, schedules that read the global step in the graph.

- ``global_step`` and ``local_step`` count steps, so they go up by k at once; by less at the end of an epoch.
  Checkpoints, ``trigger_step``, and the end that somebody asks for, come after a run.
- What ``before_run`` asks for is asked for once a run. **Operations run in each of its steps**: updates of batch
  normalization, moving averages, the sums of epoch means. **Tensors are fetched from the last step.** What is fed is
  the same in all steps.
- What is to happen every n steps, such as `PeriodicTrigger(every_k_steps=n)`, happens after the run that passes such a
  step. What gates the runs themselves, `PeriodicCallback(every_k_steps=n)`, needs an n that k divides.
- A hyperparameter that a callback sets after a step, as `ScheduledHyperParamSetter(step_based=True)` does, stays what
  it is for k steps. Where that matters, compute it from the global step in the graph.
- If the data ends within a run, the steps that were done count.
- TensorFlow's own random ops draw one sequence in the loop, and another one in the steps that something is fetched
  from.

With ``xla=True``, the loop over the k steps is compiled as one; see `tpk.graph.loops`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpk.errors import ConfigError
from tpk.train.epoch import as_count

if TYPE_CHECKING:
    from tpk.plugin.trainer import TrainerProtocol

SPELLINGS = {"steps_per_execution": "steps_per_run", "steps_per_loop": "steps_per_run"}
"""What it is called in other systems."""

_MAKES_ONE_RUN = ("tpk.train.trainer", "tpk.train.multi_objective")


def as_steps_per_run(value: Any) -> int:
    """Return how many steps a run makes, as an `int`.

    Raises:
        ConfigError: if it is no positive whole number.
    """
    return as_count(f"steps_per_run={value!r}", value, 1)


def check_steps_per_run(trainer: TrainerProtocol) -> None:
    """See to it that a run of a trainer can make several steps, if it is to; called once the train ops are there.

    Raises:
        ConfigError: if it cannot. It names what stands in the way.
    """
    steps = trainer.loop.steps_per_run
    if steps == 1:
        return
    what = f"steps_per_run={steps}"
    kind: Any = type(trainer)
    if kind.run_step.__module__ not in _MAKES_ONE_RUN:
        raise ConfigError(
            f"{what}: {kind.__name__} has a run_step of its own, which runs once a step. Leave steps_per_run out, or "
            "make the step one train_op, and run_step that of the base class."
        )
    if len(trainer.train_ops) != 1:
        raise ConfigError(
            f"{what}: a step of this {kind.__name__} is not always one run of the same op. Leave steps_per_run out, or "
            "minimize all objectives in each step: update='together', and every=1."
        )
    if not trainer.strategy.repeats_steps:
        raise ConfigError(
            f"{what}: {type(trainer.strategy).__name__} does in each step what cannot be part of a loop in the graph. "
            "Leave steps_per_run out, or take 'single', 'replicated', 'parameter_server', 'collective' or 'horovod'."
        )
    source = trainer.input_source
    if source is not None and source.is_fed:
        raise ConfigError(
            f"{what}: {type(source).__name__} feeds the data of one step with each run. Take an input that is in the "
            "graph, such as data=tpk.QueueInput(flow)."
        )
