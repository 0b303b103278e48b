"""``tpk export``: a trained model as a file for other programs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tpk.cli.framework import examples, json_option, quiet_tensorflow
from tpk.errors import ConfigError

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
    "--outputs",
    metavar="C,D",
    help="Names of tensors to return, or key=name.  [default: what the model has as output_names]",
)
@click.option(
    "--checkpoint",
    metavar="NAME",
    help="A step, a name in the directory such as model-900, the name of a MinSaver or MaxSaver such as min-val_error "
    "for its best, or a path.  [default: the newest that is complete]",
)
@click.option("--averaged", is_flag=True, help="Take the moving averages of weights in place of the weights.")
@click.option("--precision", default="float32", show_default=True, help="What the model computes in.")
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

    RUN_DIR is the directory of a run; or a checkpoint, such as RUN/min-val_error, or an .npz file. MODULE:MODEL is a
    tpk.ModelDesc: a class or function without arguments, or an instance. OUT is where to write it; a directory for
    savedmodel.
    """
    if os.path.lexists(out):
        raise ConfigError(f"{out} exists already, and is left as it is. Name another path, or remove it.")
    quiet_tensorflow()
    from tpk.cli.export.model import export_model

    return export_model(
        run_dir,
        model,
        to,
        out,
        inputs=inputs,
        outputs=outputs,
        checkpoint=checkpoint,
        averaged=averaged,
        precision=precision,
        as_json=as_json,
    )
