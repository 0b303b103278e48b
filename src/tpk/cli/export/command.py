"""``tpk export``: a trained model as a file for other programs."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from tpk.errors import ConfigError

FORMATS = ("savedmodel", "frozen", "tflite")


def add_export_command(commands: Any) -> None:
    """Add the arguments of ``tpk export`` to `commands`, the subparsers of the command."""
    parser = commands.add_parser(
        "export",
        help="write a trained model as a SavedModel, a frozen graph, or for TensorFlow Lite",
        description="Write a trained model, with its weights, in a format for programs without tpk.",
    )
    parser.set_defaults(run=_export)
    parser.add_argument(
        "run_dir", help="the directory of a run; or a checkpoint, such as RUN/min-val_error, or an .npz file"
    )
    parser.add_argument(
        "model", metavar="MODULE:MODEL", help="a tpk.ModelDesc: a class or function without arguments, or an instance"
    )
    parser.add_argument("--to", choices=FORMATS, default="savedmodel", help="the format (default: %(default)s)")
    parser.add_argument("out", type=Path, metavar="OUT", help="where to write it; a directory for savedmodel")
    parser.add_argument(
        "--inputs", metavar="A,B", help="names of tensors to feed (default: the inputs that the outputs need)"
    )
    parser.add_argument(
        "--outputs",
        metavar="C,D",
        help="names of tensors to return, or key=name (default: what the model has as output_names)",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="NAME",
        help="a step, a name in the directory such as model-900, the name of a MinSaver or MaxSaver such as "
        "min-val_error for its best, or a path (default: the newest that is complete)",
    )
    parser.add_argument(
        "--averaged", action="store_true", help="take the moving averages of weights in place of the weights"
    )
    parser.add_argument("--precision", default="float32", help="what the model computes in (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="write JSON about what was exported")


def _export(arguments: argparse.Namespace) -> int:
    if os.path.lexists(arguments.out):
        raise ConfigError(f"{arguments.out} exists already, and is left as it is. Name another path, or remove it.")
    # What TensorFlow says about itself is not what was asked for. It says it about oneDNN whatever the level.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    from tpk.cli.export.model import export_model

    return export_model(
        arguments.run_dir,
        arguments.model,
        arguments.to,
        arguments.out,
        inputs=arguments.inputs,
        outputs=arguments.outputs,
        checkpoint=arguments.checkpoint,
        averaged=arguments.averaged,
        precision=arguments.precision,
        as_json=arguments.json,
    )
