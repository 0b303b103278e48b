"""``tpk checkpoint``: which checkpoints there are, what is in them, and how two of them differ."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpk.errors import CheckpointError

_WHICH = (
    "prefix or file of a checkpoint, directory (its newest complete one), <directory>/<step or name of a saver of the "
    "best, such as min-val_error>, or .npz file"
)


def add_checkpoint_command(commands: Any) -> None:
    """Add the arguments of ``tpk checkpoint`` to `commands`, the subparsers of the command."""
    parser = commands.add_parser(
        "checkpoint",
        help="list, show, compare and convert checkpoints",
        description="The exit status is 2 after an error.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    ls = actions.add_parser("ls", help="list the checkpoints of a directory, without TensorFlow")
    ls.add_argument("directory", type=Path, help="the directory of a run")
    ls.add_argument(
        "--verify",
        action="store_true",
        help="read every byte, and compare the checksums; TensorFlow does it where there is no training state",
    )
    ls.add_argument("--json", action="store_true", help="write JSON")
    ls.set_defaults(run=_guarded(_ls))

    show = actions.add_parser("show", help="show names, shapes, dtypes and sizes of what a checkpoint holds")
    show.add_argument("checkpoint", help=_WHICH)
    show.add_argument("--values", metavar="NAME", help="statistics of the values of one variable instead")
    show.add_argument("--json", action="store_true", help="write JSON")
    show.set_defaults(run=_guarded(_show))

    diff = actions.add_parser("diff", help="compare two checkpoints; the exit status is 1 if they differ")
    diff.add_argument("first", help=_WHICH)
    diff.add_argument("second", help="the same")
    diff.add_argument("--json", action="store_true", help="write JSON")
    diff.set_defaults(run=_guarded(_diff))

    to_npz = actions.add_parser("to-npz", help="write the variables of a checkpoint to an .npz file")
    to_npz.add_argument("checkpoint", help=_WHICH)
    to_npz.add_argument("out", type=Path, metavar="OUT.npz", help="the file to write")
    to_npz.add_argument("--force", action="store_true", help="overwrite it if it is there")
    to_npz.set_defaults(run=_guarded(_to_npz))


# NumPy and TensorFlow take time to import, so each action imports what it needs, and the others need not wait.


def _ls(arguments: argparse.Namespace) -> int:
    from tpk.cli.checkpoint.listing import list_checkpoints

    return list_checkpoints(arguments.directory, verify=arguments.verify, as_json=arguments.json)


def _show(arguments: argparse.Namespace) -> int:
    from tpk.cli.checkpoint.values import show_values, show_variables

    if arguments.values is not None:
        return show_values(arguments.checkpoint, arguments.values, as_json=arguments.json)
    return show_variables(arguments.checkpoint, as_json=arguments.json)


def _diff(arguments: argparse.Namespace) -> int:
    from tpk.cli.checkpoint.diff import diff_checkpoints

    return diff_checkpoints(arguments.first, arguments.second, as_json=arguments.json)


def _to_npz(arguments: argparse.Namespace) -> int:
    from tpk.cli.checkpoint.to_npz import write_npz

    return write_npz(arguments.checkpoint, arguments.out, overwrites=arguments.force)


def _guarded(action: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Return `action` with its errors turned into a line on stderr and exit status 2, as those of `diff` are."""

    def run(arguments: argparse.Namespace) -> int:
        # What TensorFlow says about itself is not what was asked for. It says it about oneDNN whatever the level.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
        try:
            return action(arguments)
        except BrokenPipeError:
            raise
        except (CheckpointError, OSError) as error:
            print("tpk:", " ".join(str(error).split()), file=sys.stderr)
            return 2

    return run
