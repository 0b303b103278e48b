"""Predictors of the towers of a training: on which device, from which tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.devices import resolve_devices
from tpk.predict.online import OnlinePredictor
from tpk.tower.handle import TowerHandle


def predictor_of(
    tower: TowerHandle,
    input_names: Sequence[str],
    output_names: Sequence[str] | Mapping[str, str],
    get_session: Callable[[], Any],
) -> OnlinePredictor:
    """Return a predictor of tensors of `tower`.

    Args:
        tower: an inference tower.
        input_names: names of inputs in its signature, or of other tensors in it.
        output_names: names of tensors in it; or a mapping of keys to such names, for results that are dicts.
        get_session: returns the session; see `OnlinePredictor`.

    Raises:
        TowerError: if the tower has no such tensors.
        InputError: if the outputs depend on an input that is not named.
        ConfigError: if names are not given as a list.
    """
    check_names("input_names", input_names)
    check_names("output_names", output_names)
    inputs = {name.removesuffix(":0"): tower.get_tensor(name) for name in input_names}
    if isinstance(output_names, Mapping):
        outputs = {key: tower.get_tensor(name) for key, name in output_names.items()}
        return OnlinePredictor(inputs, outputs, get_session)
    names = [name.removesuffix(":0") for name in output_names]
    return OnlinePredictor(inputs, tower.get_tensors(names), get_session, names)


def device_for(device: str | int | None, towers: Sequence[TowerHandle]) -> str | None:
    """Return the device string that `device` means for an inference tower; one and the same for each device.

    Args:
        device: a device string; the number of a training tower, for the device of that one; -1 or ``"cpu"`` for the
            CPU; None to let TensorFlow place the ops.
        towers: the training towers.

    Returns:
        Such as ``"/device:GPU:0"``; None to let TensorFlow place the ops, as it does for the tower in question, too.

    Raises:
        ConfigError: if there is no such device.
    """
    if device is None:
        return None
    if isinstance(device, int) and 0 <= device < len(towers) and not isinstance(device, bool):
        output = towers[device].output
        # All costs of a tower are on its device.
        cost = next(iter(output.values())) if isinstance(output, Mapping) else output
        return _canonical(cost.device) if cost.device else None
    if device in (-1, "cpu"):
        return _canonical("/cpu:0")
    if not isinstance(device, str):
        raise ConfigError(
            f"device={device!r} of a predictor: expected the number of a training tower (0 to {len(towers) - 1}), -1 "
            "or 'cpu' for the CPU, a device string, or None."
        )
    return _canonical(resolve_devices(device)[0])


def check_names(option: str, names: Any) -> None:
    """Check names of tensors.

    Args:
        option: what they are given as, for messages.
        names: should be a list of names, or a mapping to names.

    Raises:
        ConfigError: if they are something else.
    """
    if isinstance(names, str):
        raise ConfigError(f"{option}={names!r}: expected a list, e.g. [{names!r}].")
    values = list(names.values()) if isinstance(names, Mapping) else names
    if not isinstance(values, Sequence) or not values or not all(isinstance(name, str) for name in values):
        raise ConfigError(f"{option}={names!r}: expected at least one name, each a str.")


def _canonical(device: str) -> str:
    return str(tf.DeviceSpec.from_string(device).to_string())
