"""Training towers, one after the other, on their devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import attrs
import tensorflow as tf

from tpk.errors import ConfigError, TowerError
from tpk.graph.gradients import Gradients, compute_gradients
from tpk.graph.objective import Objective
from tpk.graph.variables import record_variables, variable_name
from tpk.layers.cross_tower import CrossTowerSums, check_sums_are_complete
from tpk.plugin.creation import also_spelled
from tpk.tower.context import TrainTowerContext


@attrs.frozen(eq=False)
class Tower:
    """A training tower that was built.

    Attributes:
        device: where its ops are.
        vs_name: its variable scope; empty if its variables are in that around.
        output: what the function returned.
        variables: the trainable variables that it uses.
        created: all variables that it created, in order.
        ops: all ops that it added to the graph.
    """

    device: str
    vs_name: str
    output: Any
    variables: list[Any]
    created: list[Any]
    ops: list[Any]


@also_spelled(
    var_strategy="write vs_names= for it: for 'replicate' a variable scope for each tower, such as ['', 'tower1']; for "
    "'shared', leave it out."
)
def build_on_multi_tower(
    devices: Sequence[str],
    func: Callable[[], Any],
    vs_names: Sequence[str] | None = None,
    place: Callable[[str], Any] | None = None,
    sum_over_processes: Callable[[Any], Any] | None = None,
) -> list[Tower]:
    """Build a tower on each device, under a `TrainTowerContext` with the name scope ``tower<index>``.

    The variables that a tower creates are called by its variable scope and by the name that they would have in a tower
    alone, also those that TensorFlow names after tensors and name scopes: a `tf.Variable`, a slot, a metric. What is
    not trained is without the variable scope in the first tower, because it is saved.

    Args:
        devices: a device string for each tower.
        func: builds a tower, and returns its output; called once for each.
        vs_names: the variable scope of each tower; an empty one shares the variables of the first tower. By default
            all of them do.
        place: given the device of a tower, returns the device function of its ops, such as one of
            `LeastLoadedDeviceSetter`; by default all of them are on its device.
        sum_over_processes: adds to the graph the sum of a tensor over all processes, where several train together and
            `sum_across_towers` shall reach the towers of all; by default it reaches those that are built here.

    Returns:
        The towers.

    Raises:
        ConfigError: if a device is no string.
        TowerError: if there are not as many scopes as devices, or some towers need values that others do not have.

    Example:
        ```python
        towers = build_on_multi_tower(["/gpu:0", "/gpu:1"], lambda: tower_func(*get_inputs()))
        ```
    """
    if not all(isinstance(device, str) for device in devices):
        raise ConfigError(
            f"devices={list(devices)!r}: expected device strings, such as ['/gpu:0', '/gpu:1']. To train on devices by "
            "their numbers, name a strategy: tpk.make_trainer('replicated', devices=[0, 1])."
        )
    vs_names = [""] * len(devices) if vs_names is None else list(vs_names)
    if len(vs_names) != len(devices):
        raise TowerError(f"{len(devices)} devices need as many variable scopes, got {vs_names}.")
    sums = CrossTowerSums(len(devices), sum_over_processes)
    graph = tf.compat.v1.get_default_graph()
    towers: list[Tower] = []
    for index, (device, vs_name) in enumerate(zip(devices, vs_names, strict=True)):
        context = TrainTowerContext(ns_name=f"tower{index}", vs_name=vs_name, index=index, total=len(devices))
        ops_before = len(graph.get_operations())
        with (
            tf.compat.v1.device(device if place is None else place(device)),
            _variables_named_as_alone(context) if context.has_own_variables else nullcontext(),
            record_variables() as created,
            sums.tower(index),
            context,
        ):
            output = func()
        if context.has_own_variables and vs_name:
            variables = context.get_collection_in_tower(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
        else:
            variables = tf.compat.v1.trainable_variables()
        ops = graph.get_operations()[ops_before:]
        towers.append(Tower(device, vs_name, output, list(variables), created, ops))
    check_sums_are_complete()
    return towers


@contextmanager
def _variables_named_as_alone(context: TrainTowerContext) -> Iterator[None]:
    """Within the context, no variable has a scope of the tower in its name, but for the variable scope in front."""
    scopes = (context.ns_name, context.vs_name)

    def creator(next_creator: Any, **options: Any) -> Any:
        # Where `get_variable` gives the whole name, there is no name scope around.
        around = tf.compat.v1.get_default_graph().get_name_scope()
        name = "/".join(filter(None, (around, options.get("name") or "Variable")))
        is_saved = context.is_main_tower and options.get("trainable") is False
        parts = ["" if is_saved else context.vs_name, *(part for part in name.split("/") if part not in scopes)]
        as_alone = "/".join(filter(None, parts))
        if as_alone == name:
            return next_creator(**options)
        with tf.name_scope(""):
            return next_creator(**{**options, "name": as_alone})

    with tf.variable_creator_scope(creator):
        yield


def in_turn(get_inputs: Callable[[], Sequence[Any]]) -> Callable[[], Sequence[Any]]:
    """Return `get_inputs`, so that each tower takes its datapoint only once the one before has taken its own.

    Otherwise the runtime decides who gets which, and no two runs would be alike.
    """
    before: list[Any] = []

    def take() -> Sequence[Any]:
        guard: AbstractContextManager[Any] = tf.control_dependencies(list(before)) if before else nullcontext()
        with guard, tf.device("/cpu:0"):
            inputs = get_inputs()
        before[:] = [tensor.op for tensor in inputs]
        return inputs

    return take


def plain_name(tower: Tower, variable: Any) -> str:
    """Return what the user calls a variable of a tower."""
    return variable_name(variable).removeprefix(f"{tower.vs_name}/" if tower.vs_name else "")


def variables_by_name(towers: Sequence[Tower]) -> list[dict[str, Any]]:
    """Return the variables that each tower has created, by what the user calls them.

    The first tower may have more of them that are not trained, such as the averages of summaries.

    Raises:
        TowerError: if one did not build the same model as the first; it names the variables that differ.
    """
    every = [{plain_name(tower, variable): variable for variable in tower.created} for tower in towers]
    main = every[0]
    trained = {name for name, variable in main.items() if variable.trainable}
    for tower, own in zip(towers, every, strict=True):
        differing = (own.keys() - main.keys()) | (trained - own.keys())
        if differing:
            raise TowerError(
                f"the tower in {tower.vs_name!r} did not create the same variables as the first one: "
                f"{', '.join(sorted(differing))}. A tower function has to build the same model each time."
            )
    return every


def gradients_of_towers(objective: Objective, optimizers: Sequence[Any], towers: Sequence[Tower]) -> list[Gradients]:
    """Return the gradients of each tower, computed on its device.

    Args:
        objective: of which they are.
        optimizers: that of each tower.
        towers: the towers.
    """
    rows: list[Gradients] = []
    for index, (tower, optimizer) in enumerate(zip(towers, optimizers, strict=True)):
        with tf.device(tower.device), tf.name_scope(f"tower{index}/gradients/"):
            variables = objective.select(tower.variables, tower.vs_name)
            rows.append(compute_gradients(optimizer, objective.cost_in(tower.output), variables))
    return rows


def check_gradients_alike(towers: Sequence[Tower], rows: Sequence[Gradients]) -> None:
    """Check that all towers have gradients of the same variables, in the same order.

    Args:
        towers: the towers.
        rows: the gradients of each.

    Raises:
        TowerError: if one has gradients of other variables than the first; it names them.
    """
    of_main: list[str] = []
    for index, (tower, row) in enumerate(zip(towers, rows, strict=True)):
        own = [plain_name(tower, variable) for _, variable in row]
        of_main = of_main if index else own
        if own != of_main:
            differing = sorted(set(own) ^ set(of_main)) or own
            raise TowerError(
                f"towers 0 and {index} have gradients of different variables, or in another order: "
                f"{', '.join(differing)}. A tower function has to build the same model each time."
            )
    check_sums_are_complete()
