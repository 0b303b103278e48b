"""``tpk board``: TensorBoard with runs under their names."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tpk.cli.runs.run import Run, find_runs, short_names
from tpk.errors import ConfigError, PluginImportError


def start_board(paths: Sequence[Path], host: str, port: int) -> int:
    """Run TensorBoard in this process, until Ctrl-C or SIGTERM ends it.

    Args:
        paths: directories of runs, or with runs below.
        host: the address to listen at.
        port: the port; 0 for one that is free.

    Returns:
        The exit status: 1 if it could not start.

    Raises:
        ConfigError: if there is no such run.
        PluginImportError: if TensorBoard cannot be imported.
    """
    runs = find_runs(paths)
    try:
        from tensorboard import default, program
    except ImportError as error:
        raise PluginImportError(f"tpk board needs TensorBoard ({error}): pip install {_what_lacks(error)}") from error
    # TensorBoard calls a run by its path in one directory, so it gets one with just these.
    with tempfile.TemporaryDirectory(prefix="tpk-board-") as directory:
        link_runs(runs, Path(directory))
        board = program.TensorBoard(default.get_plugins())
        board.configure(["tensorboard", "--logdir", directory, "--host", host, "--port", str(port)])
        try:
            return 1 if board.main() else 0
        except KeyboardInterrupt:
            return 0


def link_runs(runs: Sequence[Run], directory: Path) -> None:
    """Put links to the directories of runs, under what tells them apart, into another directory.

    Raises:
        ConfigError: if there can be no links.
    """
    paths = [run.directory.resolve() for run in runs]
    for name, path in zip(short_names(runs), paths, strict=True):
        # One within another one comes with that.
        if not set(path.parents) & set(paths):
            link = directory / name
            link.parent.mkdir(parents=True, exist_ok=True)
            try:
                link.symlink_to(path, target_is_directory=True)
            except OSError as error:
                raise ConfigError(
                    f"{str(link)!r} cannot be made a link: {error}. Start TensorBoard by its own command."
                ) from error


def _what_lacks(error: ImportError) -> str:
    # Those before 2.20 import a part of setuptools that was dropped later.
    return "'setuptools<81'" if error.name == "pkg_resources" else "tensorboard"
