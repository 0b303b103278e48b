"""Towers that do not wait for each other: each updates the shared variables by itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

import tpk
from tpk.errors import ConfigError, InputError
from tpk.graph.devices import Devices, add_logical_devices
from tpk.graph.gradients import Gradients, check_optimizer, map_values
from tpk.graph.objective import Objective
from tpk.input_source.base import InputSource
from tpk.input_source.staging import StagingInput
from tpk.layers.cross_tower import check_nothing_is_summed
from tpk.plugin import Callback, hookimpl
from tpk.plugin.creation import also_spelled
from tpk.strategies.base import DEVICE_SPELLINGS, SCALE_GRADIENT, GetInputs, Strategy
from tpk.strategies.parameter_server import SharedVariables
from tpk.strategies.towers import Tower, gradients_of_towers
from tpk.strategies.update_order import after_reads
from tpk.tower.tower_func import TowerFunc

logger = logging.getLogger(__name__)


@also_spelled(DEVICE_SPELLINGS, average=SCALE_GRADIENT)
class AsyncStrategy(Strategy):
    """Towers on several devices that share the variables, and update them without waiting for each other.

    The loop trains the first tower, with all hooks. Each of the other towers is trained by a separate thread, as fast
    as it can, during epochs. So `steps_per_epoch` and `global_step` count the steps of the first tower. At the end of
    an epoch all threads pause, so the variables do not change while they are saved or evaluated. No two runs are alike.

    The data must come from the graph, because a feed reaches only one thread: use `QueueInput`, `TFDatasetInput` or
    `TensorInput`.

    Args:
        devices: a count, indices, or device strings; see `resolve_devices`.
        scale_gradient: divide gradients by the number of towers, so that all towers together change the variables as
            much as one would.
        ps_device: ``"cpu"``: all variables are on the CPU; ``"gpu"``: each is on the least loaded of `devices`.

    Attributes:
        updates: the number of updates of each tower in this training, once it has started.

    Raises:
        ConfigError: if a device does not exist, or `ps_device` is something else.
    """

    is_reproducible = False

    def __init__(self, devices: Devices = None, scale_gradient: bool = True, ps_device: str = "cpu") -> None:
        self._shared = SharedVariables(devices, ps_device)
        self._scale = 1.0 / len(self._shared.devices) if scale_gradient else 1.0
        self._workers: _AsyncWorkers | None = None

    @property
    def num_replicas(self) -> int:
        """The number of devices."""
        return len(self._shared.devices)

    @property
    def updates(self) -> list[int]:
        """The number of updates of each tower."""
        return [] if self._workers is None else self._workers.updates

    def session_config(self, config: Any) -> Any:
        """Return `config` with the logical devices that are needed."""
        return add_logical_devices(config, self._shared.devices)

    def prepare_input(self, source: InputSource) -> InputSource:
        """Return `source`.

        Raises:
            InputError: if it stages its datapoints for all towers at once.
        """
        if isinstance(source, StagingInput):
            raise InputError(
                "StagingInput stages a datapoint for each tower at once, but the towers of strategy 'async' take their "
                f"datapoints independently. Pass the {type(source.source).__name__} alone."
            )
        return source

    def build(
        self,
        tower_func: TowerFunc,
        get_inputs: GetInputs,
        objectives: Sequence[Objective],
        groups: Sequence[Sequence[int]] = ((0,),),
    ) -> list[Any]:
        """Build the towers, and an op for each that applies its gradients; return the op of the first tower.

        Raises:
            ConfigError: if there are several objectives.
            InputError: if the data is fed.
            TowerError: if the model synchronizes statistics over towers.
        """
        if len(objectives) != 1 or len(groups) != 1:
            raise ConfigError(
                "strategy 'async' trains one objective, because its towers do not wait for each other. For several "
                "objectives, use 'replicated' or 'parameter_server'."
            )
        towers = self._shared.build_towers(tower_func, _never_fed(get_inputs))
        check_nothing_is_summed("async")
        optimizer = check_optimizer(objectives[0].get_optimizer())
        gradients = gradients_of_towers(objectives[0], [optimizer] * len(towers), towers)
        ops = [
            self._apply(optimizer, tower, objectives[0].cost_in(tower.output), pairs, index)
            for index, (tower, pairs) in enumerate(zip(towers, gradients, strict=True))
        ]
        return self.ops_of_step(ops)

    def ops_of_step(self, ops: list[Any]) -> list[Any]:
        """Return the op of a step, given the op of each tower: that of the first; threads run the others."""
        self._workers = _AsyncWorkers(ops)
        return ops[:1]

    def callbacks(self) -> list[Callback]:
        """Return the callback that runs the threads."""
        return [] if self._workers is None else [self._workers]

    def optimizer_scope(self) -> AbstractContextManager[Any]:
        """Return the name scope for the optimizer's variables that are not slots."""
        return nullcontext()

    def _apply(self, optimizer: Any, tower: Tower, cost: Any, pairs: Gradients, index: int) -> Any:
        with tf.device(tower.device), tf.name_scope(f"tower{index}/scale_gradient/"):
            if self._scale != 1:
                pairs = [(map_values(gradient, lambda x: x * self._scale), variable) for gradient, variable in pairs]
        name = f"train_op_of_tower{index}" if index else "train_op"
        with (
            tf.device(self._shared.setter.ps_devices[0]),
            self.optimizer_scope(),
            after_reads(tower.ops, [cost], pairs),
        ):
            return optimizer.apply_gradients(pairs, name=name)


def _never_fed(get_inputs: GetInputs) -> GetInputs:
    def take() -> Sequence[Any]:
        with tf.device("/cpu:0"):
            inputs = get_inputs()
        for tensor in inputs:
            if tensor.op.type in ("Placeholder", "PlaceholderV2"):
                raise InputError(
                    f"the input {tensor.name!r} is fed, but strategy 'async' trains in several threads, and a feed "
                    "reaches only one. Use QueueInput, TFDatasetInput or TensorInput."
                )
        return inputs

    return take


class _AsyncWorkers(Callback):
    """Runs the threads of the other towers during epochs."""

    chief_only = False

    def __init__(self, ops: Sequence[Any]) -> None:
        self._ops = list(ops)
        self._main_updates = 0
        self._workers = Workers([])

    @property
    def updates(self) -> list[int]:
        return [self._main_updates, *self._workers.counts]

    def before_train(self, trainer: tpk.Trainer) -> None:
        runs = [trainer.sess.make_callable(op) for op in self._ops[1:]]
        self._workers = Workers(runs, ends=(tf.errors.OutOfRangeError, tf.errors.CancelledError))

    @hookimpl(trylast=True)
    def before_epoch(self, trainer: tpk.Trainer) -> None:
        self._workers.resume()

    def trigger_step(self, trainer: tpk.Trainer) -> None:
        self._main_updates += 1
        self._workers.raise_failure()

    @hookimpl(tryfirst=True)
    def after_epoch(self, trainer: tpk.Trainer) -> None:
        self._workers.pause()
        self._workers.raise_failure()

    def after_train(self, trainer: tpk.Trainer) -> None:
        self._workers.stop()


class Workers:
    """A thread for each function, which calls it repeatedly between `resume` and `pause`.

    Args:
        functions: the function of each thread.
        ends: the errors that end a thread without a failure.
        timeout: the number of seconds that `stop` waits for a call that does not return.
    """

    def __init__(
        self,
        functions: Sequence[Callable[[], object]],
        ends: tuple[type[Exception], ...] = (),
        timeout: float = 10.0,
    ) -> None:
        self.counts = [0] * len(functions)
        self._ends = ends
        self._timeout = timeout
        self._failure: BaseException | None = None
        self._state = threading.Condition()
        self._may_run = False
        self._is_stopped = False
        self._busy = 0
        self._threads = [
            threading.Thread(target=self._work, args=(index, function), name=f"tpk-worker-{index + 1}", daemon=True)
            for index, function in enumerate(functions)
        ]
        for thread in self._threads:
            thread.start()

    def resume(self) -> None:
        """Let the threads continue."""
        with self._state:
            self._may_run = True
            self._state.notify_all()

    def pause(self) -> None:
        """Wait until the threads have finished their calls, and let them start no new ones."""
        with self._state:
            self._may_run = False
            self._state.wait_for(lambda: self._busy == 0)

    def stop(self) -> None:
        """End the threads."""
        with self._state:
            self._may_run, self._is_stopped = False, True
            self._state.notify_all()
        for thread in self._threads:
            thread.join(self._timeout)
            if thread.is_alive():
                logger.warning(
                    "%s has not ended its call after %g seconds, so it is abandoned", thread.name, self._timeout
                )

    def raise_failure(self) -> None:
        """Raise the first failure of a thread, if there is one, with its traceback."""
        failure = self._failure
        if failure is not None:
            self._failure = None
            raise failure

    def _work(self, index: int, function: Callable[[], object]) -> None:
        while self._begin_call():
            try:
                function()
                self.counts[index] += 1
            except self._ends:
                return
            except BaseException as failure:
                self._failure = self._failure or failure
                return
            finally:
                self._end_call()

    def _begin_call(self) -> bool:
        """Wait until a call may begin; return False if the thread must end."""
        with self._state:
            self._state.wait_for(lambda: self._may_run or self._is_stopped)
            if self._is_stopped:
                return False
            self._busy += 1
            return True

    def _end_call(self) -> None:
        with self._state:
            self._busy -= 1
            self._state.notify_all()
