"""The monitor ``wandb``."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb

import tpk
from tpk_wandb.media import as_histogram, as_image

logger = logging.getLogger(f"tpk.{__name__}")

_MODES = ("online", "offline")


class WandbMonitor(tpk.Monitor):
    """Records a training as a run in Weights & Biases: configuration, scalars, images, histograms.

    The configuration is what ``config.json`` in the `run_dir` says. The step of W&B is the global step; of a scalar
    that is reported twice in one step, the last value counts.

    When it runs: what is reported in one step is handed, when the next step reports or the epoch ends, to W&B's own
    process, which takes milliseconds where the machine is busy, and does not wait for a server. The training waits for
    W&B at its beginning and its end, see `timeout`. It works on every strategy; only the chief records.

    A training that is resumed goes on in the same run, whose id is in the checkpoint. Steps that it repeats, and that
    the server has, are left as they are. Offline, the run goes on in another directory with the same id; both hold the
    steps that were repeated.

    A server that is not there stops no training: the run is recorded offline then, which the log says, and the command
    that brings it there. If it goes away later, W&B keeps what it could not send in the same way.

    Args:
        project: what the run belongs to; None leaves it to W&B (``WANDB_PROJECT``).
        entity: the user or team; None for the default of who is logged in.
        run_name: what the run is called; None takes the last two parts of the `run_dir`.
        group: what to group the run with, as W&B means it.
        tags: labels of the run.
        mode: ``"online"`` or ``"offline"``; None for ``WANDB_MODE``, or ``"online"``.
        timeout: how long the training waits for W&B's server at its beginning and at its end, in seconds.

    Attributes:
        run: the `wandb.Run`, from the beginning of the training to its end; else None.

    Raises:
        ConfigError: if an option has a value that it cannot have; and, when the training starts online, if nobody is
            logged in, which W&B is never let ask for.

    Example:
        ```python
        tpk.TrainConfig(..., extra_monitors=[tpk.use("wandb", project="digits", mode="offline")])
        ```
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        entity: str | None = None,
        run_name: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        mode: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        if isinstance(tags, str):
            raise tpk.ConfigError(f"wandb(tags={tags!r}): expected a list of texts, e.g. [{tags!r}].")
        if mode is not None and mode not in _MODES:
            raise tpk.ConfigError(
                f"wandb(mode={mode!r}): expected 'online', 'offline' or None. To record nothing, leave the monitor out."
            )
        if timeout <= 0:
            raise tpk.ConfigError(f"wandb(timeout={timeout}): expected a number of seconds greater than 0.")
        self.run: wandb.Run | None = None
        self._options = {"project": project, "entity": entity, "group": group, "tags": tuple(tags) or None}
        self._run_name = run_name
        self._mode = mode
        self._timeout = timeout
        self._run_id: str | None = None
        self._step = 0
        self._row: dict[str, Any] = {}

    def before_train(self, trainer: Any) -> None:
        """Begin the run, or go on with it.

        Raises:
            ConfigError: if nobody is logged in, or W&B refuses to begin the run with these options.
        """
        mode = self._mode or os.environ.get("WANDB_MODE") or "online"
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            raise tpk.ConfigError(
                "wandb has no API key. Run `wandb login` once, set WANDB_API_KEY, or record without a server: "
                "tpk.use('wandb', mode='offline')."
            )
        try:
            self.run = self._begin(trainer.run_dir, mode)
        except (wandb.errors.AuthenticationError, wandb.errors.UsageError) as error:
            raise tpk.ConfigError(
                f"wandb does not record this run: {error} Check its options and `wandb login`, or leave it out."
            ) from error
        except wandb.errors.Error as error:
            self.run = self._begin(trainer.run_dir, "offline")
            logger.error("wandb does not reach its server: %s", error)
            mode = "offline"
        self._run_id = self.run.id
        if mode == "offline":
            directory = Path(self.run.dir).parent
            logger.info("wandb records offline; to bring that to a server later: wandb sync %s", directory)
        else:
            logger.info("wandb records at %s", self.run.url)

    def process_scalar(self, name: str, value: int | float) -> None:
        """Take a number."""
        self._add(name, value)

    def process_summary(self, summary: Any) -> None:
        """Take the images and histograms that are in a summary; the scalars arrive by `process_scalar`."""
        for value in summary.value:
            if value.HasField("image"):
                self._add(value.tag, as_image(value.image.encoded_image_string))
            elif value.HasField("histo"):
                self._add(value.tag, as_histogram(value.histo))

    def flush(self) -> None:
        """Hand what was reported to W&B's process."""
        if self.run is not None and self._row and self._step >= self.run.starting_step:
            self.run.log(self._row, step=self._step)
        self._row = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run, and the numbers of this step, which W&B may lose if all is killed."""
        numbers = {name: value for name, value in self._row.items() if isinstance(value, int | float)}
        return {"run_id": self._run_id, "step": self._step, "row": numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` returned, so that the same run goes on."""
        self._run_id = state["run_id"]
        self._step, self._row = state["step"], dict(state["row"])

    def after_train(self, trainer: Any) -> None:
        """End the run, and wait until the server has all of it.

        Raises:
            TimeoutError: if the server does not take it in time; it is in the directory of the run then.
        """
        run, self.run = self.run, None
        if run is not None:
            run.finish(exit_code=0 if trainer.loop.failure is None else 1)

    def _begin(self, run_dir: Path | None, mode: str) -> wandb.Run:
        return wandb.init(
            **self._options,
            name=self._run_name or (None if run_dir is None else "/".join(Path(run_dir).resolve().parts[-2:])),
            dir=run_dir,
            id=self._run_id,
            resume=None if self._run_id is None else "allow",
            mode=mode,
            config=_read_config(run_dir),
            allow_val_change=True,
            # A run of the user's own goes on beside it.
            reinit="create_new",
            settings=wandb.Settings(
                # What is printed stays where it is; the log of a run is in its directory.
                console="off",
                quiet=True,
                init_timeout=self._timeout,
                finish_timeout=self._timeout,
                finish_timeout_raises=True,
            ),
        )

    def _add(self, name: str, value: Any) -> None:
        if self.global_step != self._step:
            self.flush()
            self._step = self.global_step
        self._row[name] = value


def _read_config(run_dir: Path | None) -> dict[str, Any]:
    if run_dir is None:
        return {}
    config = json.loads((run_dir / "config.json").read_text(encoding="utf-8"))
    return config if isinstance(config, dict) else {}
