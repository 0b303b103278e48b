"""``tpk train``: a training described by a file."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import click

from tpk.cli.framework import examples
from tpk.errors import ConfigError, PluginError, TpkError, shorten


@click.command(
    epilog=examples(
        "tpk train digits.toml",
        "tpk train digits.toml max_epoch=3 trainer=replicated trainer.devices=2",
        "tpk train digits.toml callbacks.ModelSaver.max_to_keep=5 run_dir=runs/digits",
        "tpk train runs/digits/config.toml              # repeats that run",
        "tpk train runs/digits/config.toml --resume     # resumes it",
        "tpk launch -n 2 -m tpk train digits.toml trainer=collective",
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--resume", is_flag=True, help="Resume the run that FILE belongs to.")
def train(file: Path, overrides: tuple[str, ...], resume: bool) -> int:
    """Train what a file describes.

    FILE is TOML or JSON, with the keys of tpk.TrainConfig and the key trainer. It names the model, the data and the
    plugins; their modules may be in its directory. Each run that was launched with a config leaves such a file,
    config.toml, in its directory.

    KEY=VALUE changes an option of the file. VALUE is a TOML value or null; anything else is a string. See
    tpk.read_run_file for the details.
    """
    # These import TensorFlow.
    from tpk.train.launch import launch_train_with_config
    from tpk.train.run.run_directory import default_run_dir, run_of_file
    from tpk.train.run_file.read import read_run_file

    config, trainer = read_run_file(file, overrides)
    run = run_of_file(file)
    if resume and run is None:
        raise ConfigError(
            f"--resume: {file} is not the config.toml of a run. Write run_dir=<directory of the run> resume=auto."
        )
    if resume:
        config.run_dir, config.resume = run, "auto"
    elif config.run_dir is None and config.resume == "never":
        # A repeated run is put next to the original.
        config.run_dir = default_run_dir(Path("runs", file.stem) if run is None else run.parent)
    try:
        launch_train_with_config(config, trainer)
    except (ConfigError, PluginError):
        raise
    except TpkError as error:
        # The user's code may be the cause of a failure during training; the traceback shows where.
        shorten(error)
        traceback.print_exception(error)
        sys.stderr.flush()
        return 1
    return 0
