"""``tpk export``: a trained model as a file for other programs."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tpk.cli.framework import examples, json_option, quiet_tensorflow
from tpk.cli.table import print_table
from tpk.cli.target import find_object
from tpk.errors import CheckpointError, ConfigError
from tpk.text import human_size

FORMATS = ("savedmodel", "frozen", "tflite")


@click.command(
    epilog=examples(
        "tpk export runs/digits my_model:Model out",
        "tpk export runs/digits my_model:Model model.tflite --to tflite --outputs probabilities",
        "tpk export runs/digits my_model:Model model.pb --to frozen --checkpoint min-val_error --averaged",
    )
)
@click.argument("run_dir")
@click.argument("model", metavar="MODULE:MODEL")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--to", type=click.Choice(FORMATS), default="savedmodel", show_default=True, help="The format.")
@click.option("--inputs", metavar="A,B", help="Names of tensors to feed.  [default: the inputs that the outputs need]")
@click.option(
    "--outputs", metavar="C,D", help="Names of tensors to return, or key=name.  [default: output_names of the model]"
)
@click.option(
    "--checkpoint",
    metavar="NAME",
    help="A step; a name in the directory, such as model-900; the name of a saver of the best, such as min-val_error; "
    "or a path.  [default: the newest complete one]",
)
@click.option("--averaged", is_flag=True, help="Export the moving averages of the weights instead of the weights.")
@click.option("--precision", default="float32", show_default=True, help="The precision in which the model computes.")
@json_option
def export(
    run_dir: str,
    model: str,
    out: Path,
    to: str,
    inputs: str | None,
    outputs: str | None,
    checkpoint: str | None,
    averaged: bool,
    precision: str,
    as_json: bool,
) -> int:
    """Write a trained model for programs without tpk.

    RUN_DIR is the directory of a run, a checkpoint such as RUN/min-val_error, or an .npz file. MODULE:MODEL is a
    tpk.ModelDesc: an instance, or a class or function without arguments. OUT is where to write it; a directory for
    savedmodel.
    """
    if os.path.lexists(out):
        raise ConfigError(f"{out} exists already. Name another path, or remove it.")
    quiet_tensorflow()
    from tpk.predict.export import ModelExporter
    from tpk.predict.predict_config import PredictConfig
    from tpk.predict.weights import AveragedWeights

    weights = _find_weights(run_dir, checkpoint)
    description = _make_model(model)
    config = PredictConfig(
        model=description,
        session_init=AveragedWeights(weights) if averaged else weights,
        input_names=None if inputs is None else _split(inputs, "--inputs"),
        output_names=_output_names(outputs, description, model),
        precision=precision,
    )
    exporter = ModelExporter(config)
    if to == "savedmodel":
        signatures = exporter.export_savedmodel(out)
    else:
        signatures = {"serving_default": exporter.export_frozen(out) if to == "frozen" else exporter.export_tflite(out)}
    described = {
        name: {"inputs": _specs(signature.inputs), "outputs": _specs(signature.outputs)}
        for name, signature in signatures.items()
    }
    size = sum(path.stat().st_size for path in [out, *out.rglob("*")] if path.is_file())
    if as_json:
        data = {"path": str(out), "format": to, "weights": weights, "size": size, "signatures": described}
        print(json.dumps(data, indent=2))
        return 0
    print(f"{out}: {to} of {weights}, {human_size(size)}")
    for name, signature in described.items():
        rows = [
            (direction.removesuffix("s"), key, spec["dtype"], _shape_text(spec["shape"]), spec["tensor"])
            for direction, specs in signature.items()
            for key, spec in specs.items()
        ]
        print_table((name, "name", "dtype", "shape", "tensor"), rows)
    return 0


def _find_weights(run_dir: str, name: str | None) -> str:
    """Return the path of a checkpoint, or of an ``.npz`` file.

    Raises:
        CheckpointError: if it does not exist.
    """
    from tpk.checkpoint.reader import find_checkpoint

    if name is None:
        return run_dir if run_dir.endswith(".npz") and not os.path.isdir(run_dir) else find_checkpoint(run_dir)
    if not os.path.isdir(run_dir):
        raise CheckpointError(f"--checkpoint {name}: {run_dir!r} is not a directory. Give the directory of a run.")
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
                f"{target!r} does not name its outputs. Give --outputs, the names of tensors in build_graph, or give "
                "the model an attribute output_names."
            )
        return list(names)
    names = _split(given, "--outputs")
    if not any("=" in name for name in names):
        return names
    pairs = [name.partition("=") for name in names]
    return {key: name or key for key, _, name in pairs}


def _split(names: str, option: str) -> list[str]:
    found = [name.strip() for name in names.split(",")]
    if not all(found):
        raise ConfigError(f"{option} {names!r}: expected names separated by commas.")
    return found


def _specs(specs: Mapping[str, Any]) -> dict[str, Any]:
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
