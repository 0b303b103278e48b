"""``tpk checkpoint``: which checkpoints there are, what is in them, and how two of them differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tpk.cli.framework import examples, json_option, quiet_tensorflow
from tpk.errors import CheckpointError

_TROUBLE = 2


@click.group(
    epilog=examples(
        "tpk checkpoint ls runs/digits --verify",
        "tpk checkpoint show runs/digits",
        "tpk checkpoint diff runs/digits/900 runs/digits/1800",
        "tpk checkpoint to-npz runs/digits/min-val_error weights.npz",
    )
)
def checkpoint() -> None:
    """List, show, compare and convert checkpoints.

    A CHECKPOINT is the prefix or a file of one; a directory, for its newest complete one; DIRECTORY/STEP;
    DIRECTORY/NAME of a saver of the best, such as min-val_error; or an .npz file.
    """


# NumPy and TensorFlow take time to import, so each action imports what it needs, and the others need not wait.


@checkpoint.command(epilog=examples("tpk checkpoint ls runs/digits", "tpk checkpoint ls runs/digits --verify --json"))
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--verify",
    is_flag=True,
    help="Read every byte, and compare the checksums; TensorFlow does it where there is no training state.",
)
@json_option
def ls(directory: Path, verify: bool, as_json: bool) -> int:
    """List the checkpoints of a run's directory, without TensorFlow."""
    quiet_tensorflow()
    from tpk.cli.checkpoint.listing import list_checkpoints

    with _files_may_fail():
        return list_checkpoints(directory, verify=verify, as_json=as_json)


@checkpoint.command(
    epilog=examples("tpk checkpoint show runs/digits/900", "tpk checkpoint show runs/digits --values conv0/W")
)
@click.argument("checkpoint")
@click.option("--values", metavar="NAME", help="Statistics of the values of one variable instead.")
@json_option
def show(checkpoint: str, values: str | None, as_json: bool) -> int:
    """Show names, shapes, dtypes and sizes of what a checkpoint holds."""
    quiet_tensorflow()
    from tpk.cli.checkpoint.values import show_values, show_variables

    with _files_may_fail():
        if values is not None:
            return show_values(checkpoint, values, as_json=as_json)
        return show_variables(checkpoint, as_json=as_json)


@checkpoint.command(epilog=examples("tpk checkpoint diff runs/digits/900 weights.npz"))
@click.argument("first")
@click.argument("second")
@json_option
def diff(first: str, second: str, as_json: bool) -> int:
    """Compare two checkpoints.

    The exit status is that of diff(1): 0 if they are the same, 1 if they differ, 2 if one cannot be read.
    """
    quiet_tensorflow()
    from tpk.cli.checkpoint.diff import diff_checkpoints

    try:
        with _files_may_fail():
            return diff_checkpoints(first, second, as_json=as_json)
    except CheckpointError as error:
        print("tpk:", " ".join(str(error).split()), file=sys.stderr)
        return _TROUBLE


@checkpoint.command("to-npz", epilog=examples("tpk checkpoint to-npz runs/digits weights.npz --force"))
@click.argument("checkpoint")
@click.argument("out", metavar="OUT.npz", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
def to_npz(checkpoint: str, out: Path, force: bool) -> int:
    """Write the variables of a checkpoint to an .npz file."""
    quiet_tensorflow()
    from tpk.cli.checkpoint.to_npz import write_npz

    with _files_may_fail():
        return write_npz(checkpoint, out, overwrites=force)


@contextmanager
def _files_may_fail() -> Iterator[None]:
    """Turn what the operating system says about files into an error of a line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CheckpointError(str(error)) from error
