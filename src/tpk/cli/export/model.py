"""``tpk export``: find the model and its weights, and write them in another format."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpk.checkpoint.reader import find_checkpoint
from tpk.cli.table import print_table
from tpk.cli.target import find_object
from tpk.errors import CheckpointError, ConfigError
from tpk.predict.config import PredictConfig
from tpk.predict.export import ExportedSignature, ModelExporter
from tpk.predict.weights import AveragedWeights
from tpk.text import human_size


def export_model(
    run_dir: str,
    target: str,
    to: str,
    out: Path,
    *,
    inputs: str | None,
    outputs: str | None,
    checkpoint: str | None,
    averaged: bool,
    precision: str,
    as_json: bool,
) -> int:
    """Export a model, and write to stdout what was exported.

    Args:
        run_dir: the directory of a run; or the path of a checkpoint or of an ``.npz`` file.
        target: the model, as ``module:attribute``.
        to: ``"savedmodel"``, ``"frozen"`` or ``"tflite"``.
        out: where to write it.
        inputs: names of tensors with commas between them; None for those that the outputs need.
        outputs: the same, or ``key=name``; None for what the model has as ``output_names``.
        checkpoint: which one in `run_dir`: a step, a name, or the name of a saver of the best; None for the newest.
        averaged: whether to take the averages of weights.
        precision: what the model computes in.
        as_json: write JSON in place of a table.

    Returns:
        The exit status, 0.

    Raises:
        TpkError: if something of that is not there, or does not fit.
    """
    weights = _find_weights(run_dir, checkpoint)
    model = _make_model(target)
    config = PredictConfig(
        model=model,
        session_init=AveragedWeights(weights) if averaged else weights,
        input_names=None if inputs is None else _split(inputs, "--inputs"),
        output_names=_output_names(outputs, model, target),
        precision=precision,
    )
    signatures = _write(ModelExporter(config), to, out)
    _show(to, out, weights, signatures, as_json=as_json)
    return 0


def _write(exporter: ModelExporter, to: str, out: Path) -> Mapping[str, ExportedSignature]:
    if to == "savedmodel":
        return exporter.export_savedmodel(out)
    return {"serving_default": exporter.export_frozen(out) if to == "frozen" else exporter.export_tflite(out)}


def _find_weights(run_dir: str, name: str | None) -> str:
    """Return the path of the checkpoint that is meant.

    Raises:
        CheckpointError: if there is none.
    """
    if name is None:
        return run_dir if run_dir.endswith(".npz") and not os.path.isdir(run_dir) else find_checkpoint(run_dir)
    if not os.path.isdir(run_dir):
        raise CheckpointError(f"--checkpoint {name}: there is no directory {run_dir!r}. Give the directory of a run.")
    if os.path.exists(name) or os.path.exists(f"{name}.index"):
        return name if name.endswith(".npz") else find_checkpoint(name)
    return find_checkpoint(os.path.join(run_dir, name))


def _make_model(target: str) -> Any:
    found = find_object(target)
    if isinstance(found, type) or (callable(found) and not _is_model(found)):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise ConfigError(
                f"{target!r} cannot be called without arguments: {error}. Name an instance, or a function that "
                "returns one."
            ) from error
        found = found()
    if not _is_model(found):
        raise ConfigError(
            f"{target!r} is {found!r}; expected a tpk.ModelDesc, or another object with get_input_signature() and "
            "build_graph(*tensors)."
        )
    return found


def _is_model(thing: Any) -> bool:
    return hasattr(thing, "get_input_signature") and hasattr(thing, "build_graph")


def _output_names(given: str | None, model: Any, target: str) -> Sequence[str] | Mapping[str, str]:
    if given is None:
        names = getattr(model, "output_names", None)
        names = names() if callable(names) else names
        if not names:
            raise ConfigError(
                f"{target!r} does not say what its outputs are. Name them by --outputs, as names of tensors in "
                "build_graph, or give the model an attribute output_names."
            )
        return names  # type: ignore[no-any-return]
    names = _split(given, "--outputs")
    if not any("=" in name for name in names):
        return names
    pairs = [name.partition("=") for name in names]
    return {key: name or key for key, _, name in pairs}


def _split(names: str, option: str) -> list[str]:
    found = [name.strip() for name in names.split(",")]
    if not all(found):
        raise ConfigError(f"{option} {names!r}: expected names with commas between them.")
    return found


def _show(to: str, out: Path, weights: str, signatures: Mapping[str, ExportedSignature], *, as_json: bool) -> None:
    size = sum(path.stat().st_size for path in [out, *out.rglob("*")] if path.is_file())
    if as_json:
        described = {
            name: {"inputs": _as_data(signature.inputs), "outputs": _as_data(signature.outputs)}
            for name, signature in signatures.items()
        }
        data = {"path": str(out), "format": to, "weights": weights, "size": size}
        print(json.dumps({**data, "signatures": described}, indent=2))
        return
    print(f"{out}: {to} of {weights}, {human_size(size)}")
    for name, signature in signatures.items():
        rows = [
            (kind, key, each["dtype"], _shape_text(each["shape"]), each["tensor"])
            for kind, specs in (("input", signature.inputs), ("output", signature.outputs))
            for key, each in _as_data(specs).items()
        ]
        print_table((name, "name", "dtype", "shape", "tensor"), rows)


def _as_data(specs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {
            "dtype": spec.dtype.name,
            "shape": None if spec.shape.rank is None else spec.shape.as_list(),
            "tensor": spec.name,
        }
        for key, spec in specs.items()
    }


def _shape_text(shape: Sequence[int | None] | None) -> str:
    return "any" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"
