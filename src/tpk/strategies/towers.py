"""Training towers, built one after the other on their devices."""

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
        device: the device of its ops.
        vs_name: its variable scope; empty for the surrounding scope.
        output: the return value of the tower function.
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
    var_strategy="write vs_names=: for 'replicate', a variable scope for each tower, such as ['', 'tower1']; for "
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

    A variable that a tower creates has the name that it would have in a single tower, with the tower's variable scope
    in front. This includes variables that TensorFlow names after tensors and name scopes, such as a `tf.Variable`, a
    slot or a metric. In the first tower, variables that are not trained do not have the variable scope, because they
    are saved.

    Args:
        devices: a device string for each tower.
        func: builds a tower, and returns its output; called once for each tower.
        vs_names: the variable scope of each tower; with an empty one, it shares the variables of the first tower, which
            is the default.
        place: takes the device of a tower, and returns the device function for its ops, such as
            `LeastLoadedDeviceSetter.for_worker`; by default all ops are on the device of the tower.
        sum_over_processes: adds the sum of a tensor over all processes to the graph. Set it if `sum_across_towers`
            must include the towers of all processes; by default it includes the towers that are built here.

    Returns:
        The towers.

    Raises:
        ConfigError: if a device is not a string.
        TowerError: if the number of scopes and devices differs, or some towers need values that others do not have.

    Example:
        ```python
        towers = build_on_multi_tower(["/gpu:0", "/gpu:1"], lambda: tower_func(*get_inputs()))
        ```
    """
    if not all(isinstance(device, str) for device in devices):
        raise ConfigError(
            f"devices={list(devices)!r}: expected device strings, such as ['/gpu:0', '/gpu:1']. To train on devices by "
            "number, use a strategy: tpk.make_trainer('replicated', devices=[0, 1])."
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
    """Within the context, the names of variables contain no scopes of the tower, except the variable scope in front."""
    scopes = (context.ns_name, context.vs_name)

    def creator(next_creator: Any, **options: Any) -> Any:
        # `get_variable` passes the full name, outside of any name scope.
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
    """Return a function like `get_inputs` with which towers take their datapoints in order.

    Without it, the runtime decides which tower gets which datapoint, and no two runs are alike.
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
    """Return the name that the model gives to a variable of a tower."""
    return variable_name(variable).removeprefix(f"{tower.vs_name}/" if tower.vs_name else "")


def variables_by_name(towers: Sequence[Tower]) -> list[dict[str, Any]]:
    """Return the variables that each tower created, by the names that the model gives them.

    The first tower may have additional variables that are not trained, such as the averages of summaries.

    Raises:
        TowerError: if a tower did not build the same model as the first one; the message names the variables.
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
        objective: the objective to differentiate.
        optimizers: the optimizer of each tower.
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
        rows: the gradients of each tower.

    Raises:
        TowerError: if a tower has gradients of other variables than the first one; the message names them.
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
