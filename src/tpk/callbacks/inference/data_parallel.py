"""Evaluation on several devices at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import tensorflow as tf

from tpk.callbacks.inference.data import FailuresOfModel
from tpk.callbacks.inference.inferencers import Inferencer
from tpk.callbacks.inference.runner import InferenceRunner
from tpk.graph.devices import Devices, physical_of_logical_gpus, resolve_devices
from tpk.input_source.base import InputSource
from tpk.plugin.dispatch import StepHooks
from tpk.plugin.names.spellings import also_spelled
from tpk.plugin.trainer import StrategyProtocol
from tpk.session.hooked import HookedSession
from tpk.tower.tower_func import TowerFunc


@also_spelled({"gpus": "devices"})
class DataParallelInferenceRunner(InferenceRunner):
    """An `InferenceRunner` with a tower on each of several devices, which evaluate different batches at the same time.

    The statistics are those of an `InferenceRunner`: every batch is evaluated once, and the inferencers get the results
    in the order of the batches. When fewer batches than towers are left, the first towers take them.

    The data is taken on the CPU, and fed to the towers. The towers share the variables of the main training tower.

    Args:
        input: the data, as for `InferenceRunner`.
        infs: one or more `Inferencer`s.
        devices: a count, indices, or device strings; by default those of the training's strategy, or all GPUs. A count
            or indices mean GPUs where there are any, else logical CPU devices, of which the session has as many as the
            strategy asks for.
        tower_name: what the name scopes of the towers begin with, a number follows; as for `InferenceRunner`.
        tower_func: as for `InferenceRunner`.
        sanity_batches: as for `InferenceRunner`.
        shard_data: as for `InferenceRunner`.

    Raises:
        ConfigError: as `InferenceRunner` does; if the devices are none of what is expected.

    Example:
        ```python
        tpk.DataParallelInferenceRunner(validation, tpk.ClassificationError(), devices=4)
        ```
    """

    def __init__(
        self,
        input: InputSource | Iterable[Any],
        infs: Inferencer | Sequence[Inferencer],
        devices: Devices = None,
        tower_name: str | None = None,
        tower_func: TowerFunc | None = None,
        *,
        sanity_batches: int = 0,
        shard_data: bool = True,
    ) -> None:
        super().__init__(input, infs, tower_name, tower_func, sanity_batches=sanity_batches, shard_data=shard_data)
        self._devices = None if devices is None else resolve_devices(devices)
        self._take: tuple[Any, ...] = ()
        # For each number of towers what is fetched, and fed.
        self._rounds: list[tuple[Any, list[Any]]] = []
        self._towers_session: HookedSession | None = None

    def _build(self, trainer: Any) -> None:
        """Build a tower on each device."""
        with tf.device("/cpu:0"):
            # Of what is fed, only a copy can be fetched by a compiled run.
            self._take = tuple(tf.identity(tensor) for tensor in self._data.get_input_tensors())
        devices = self._devices or _devices_of(trainer.strategy)
        name = self._free_name(trainer)
        fetches, placeholders = [], []
        for index, device in enumerate(devices):
            fetches.append(self._build_tower(trainer, f"{name}/{index}", None, device))
            placeholders.extend(self._towers[-1].inputs)
            self._rounds.append((tuple(fetches), list(placeholders)))

    def _start(self, trainer: Any) -> None:
        """Start the data."""
        super()._start(trainer)
        self._towers_session = HookedSession(
            trainer.sess, StepHooks(), translate=FailuresOfModel([tower.ns_name for tower in self._towers])
        )

    def _results(self, limit: int | None) -> Iterator[Any]:
        """Make a pass, by rounds of as many batches as there are towers."""
        assert self._towers_session is not None
        batches = self._data.batches(self._take, limit)
        while taken := list(islice(batches, len(self._rounds))):
            fetches, placeholders = self._rounds[len(taken) - 1]
            arrays = [array for batch in taken for array in batch]
            yield from self._towers_session.run(fetches, dict(zip(placeholders, arrays, strict=True)))


def _devices_of(strategy: StrategyProtocol) -> Sequence[str]:
    """Those on which it trains; where it does not tell them, all GPUs, or as many CPU devices as it has towers."""
    return strategy.devices or resolve_devices(len(physical_of_logical_gpus()) or strategy.num_replicas)
