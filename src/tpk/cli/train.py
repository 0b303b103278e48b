"""``tpk train``: a training that a file describes."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import click

from tpk.cli.framework import examples
from tpk.errors import ConfigError, PluginError, TpkError


@click.command(
    epilog=examples(
        "tpk train digits.toml",
        "tpk train digits.toml max_epoch=3 trainer=replicated trainer.devices=2",
        "tpk train digits.toml callbacks.ModelSaver.max_to_keep=5 run_dir=runs/digits",
        "tpk train runs/digits/config.toml              # repeats that run",
        "tpk train runs/digits/config.toml --resume     # goes on with it",
        "tpk launch -n 2 -m tpk train digits.toml trainer=collective",
    ),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--resume", is_flag=True, help="Go on with the run in whose directory FILE is.")
def train(file: Path, overrides: tuple[str, ...], resume: bool) -> int:
    """Train as a file says.

    FILE is TOML or JSON, with the keys of tpk.TrainConfig, and trainer. The model, the data and plugins are named; the
    directory of the file is searched for their modules. Each run that a config has launched leaves such a file,
    config.toml, in its directory.

    KEY=VALUE changes what the file says. A value is one of TOML, or null; what is neither is a text. The documentation
    of tpk.read_run_file says all of it.
    """
    # TensorFlow is imported from here on.
    from tpk.train.launch import launch_train_with_config
    from tpk.train.run.directory import default_run_dir, run_of_file
    from tpk.train.run_file.read import read_run_file

    config, trainer = read_run_file(file, overrides)
    run = run_of_file(file)
    if resume and run is None:
        raise ConfigError(
            f"--resume: {file} is not the config.toml of a run. Write run_dir=<its directory> resume=auto."
        )
    if resume:
        config.run_dir, config.resume = run, "auto"
    elif config.run_dir is None and config.resume == "never":
        # A repetition lies beside what it repeats.
        config.run_dir = default_run_dir(Path("runs", file.stem) if run is None else run.parent)
    try:
        launch_train_with_config(config, trainer)
    except (ConfigError, PluginError) as error:
        raise ConfigError(". ".join([str(error).rstrip("."), *getattr(error, "__notes__", ())])) from error
    except TpkError:
        # What fails in the midst of a training may have been caused by code of the user's, and shows where.
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0
