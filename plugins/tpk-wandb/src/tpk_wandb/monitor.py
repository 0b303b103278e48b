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
    """Records a training run in Weights & Biases: configuration, scalars, images and histograms.

    The configuration is the content of ``config.json`` in the `run_dir`. W&B's step is the global step. If a scalar is
    reported twice in one step, the last value counts.

    When it runs: the reports of a step go to W&B's own process when the next step reports or the epoch ends. This takes
    milliseconds on a busy machine and does not wait for a server. Training waits for W&B only when it starts and when
    it ends; see `timeout`. It works with every strategy; only the chief records.

    A resumed training run continues the same W&B run, whose id is in the checkpoint. Repeated steps that the server
    already has are not sent again. Offline, the run continues in another directory with the same id, and both
    directories contain the repeated steps.

    If the server is unreachable when training starts, the run is recorded offline, and the log gives the command that
    uploads it. If it becomes unreachable later, W&B keeps the unsent data in the same way. Training continues in both
    cases.

    Args:
        project: the project of the run; None leaves it to W&B (``WANDB_PROJECT``).
        entity: the user or team; None for the default entity of the logged-in user.
        run_name: the name of the run; None for the last two parts of the `run_dir`.
        group: the W&B group of the run.
        tags: the tags of the run.
        mode: ``"online"`` or ``"offline"``; None for ``WANDB_MODE``, or ``"online"``.
        timeout: how long to wait for the W&B server when training starts and when it ends, in seconds.

    Attributes:
        run: the `wandb.Run` during training; otherwise None.

    Raises:
        ConfigError: if an option is invalid; when training starts online, if the API key is missing. W&B never prompts
            for it.

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
            raise tpk.ConfigError(f"wandb(tags={tags!r}): expected a list of strings, e.g. [{tags!r}].")
        if mode is not None and mode not in _MODES:
            raise tpk.ConfigError(
                f"wandb(mode={mode!r}): expected 'online', 'offline' or None. To record nothing, remove the monitor."
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
        """Start the run, or continue it.

        Raises:
            ConfigError: if the API key is missing, or W&B rejects these options.
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
                f"wandb cannot record this run: {error} Check its options and `wandb login`, or remove it."
            ) from error
        except wandb.errors.Error as error:
            self.run = self._begin(trainer.run_dir, "offline")
            logger.error("wandb cannot reach its server: %s", error)
            mode = "offline"
        self._run_id = self.run.id
        if mode == "offline":
            directory = Path(self.run.dir).parent
            logger.info("wandb records offline; to upload the run later: wandb sync %s", directory)
        else:
            logger.info("wandb records at %s", self.run.url)

    def process_scalar(self, name: str, value: int | float) -> None:
        """Record a scalar."""
        self._add(name, value)

    def process_summary(self, summary: Any) -> None:
        """Record the images and histograms in a summary; its scalars go to `process_scalar`."""
        for value in summary.value:
            if value.HasField("image"):
                self._add(value.tag, as_image(value.image.encoded_image_string))
            elif value.HasField("histo"):
                self._add(value.tag, as_histogram(value.histo))

    def flush(self) -> None:
        """Pass the reports of the current step to W&B's process."""
        if self.run is not None and self._row and self._step >= self.run.starting_step:
            self.run.log(self._row, step=self._step)
        self._row = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run, and the scalars of this step, which W&B may lose if the processes are killed."""
        numbers = {name: value for name, value in self._row.items() if isinstance(value, int | float)}
        return {"run_id": self._run_id, "step": self._step, "row": numbers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, to continue the same run."""
        self._run_id = state["run_id"]
        self._step, self._row = state["step"], dict(state["row"])

    def after_train(self, trainer: Any) -> None:
        """Finish the run, and wait until everything is uploaded.

        Raises:
            TimeoutError: if the upload takes too long; the data is still in the run directory.
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
            # Leave a run that the user started active.
            reinit="create_new",
            settings=wandb.Settings(
                # Do not capture the console: the run directory already contains the log.
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
