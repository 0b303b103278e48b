"""Exporters: which evaluated checkpoints of `train_and_evaluate` become SavedModels."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import tensorflow as tf

from tpk_estimator.model import argument_names
from tpk_estimator.run_config import positive_or_none

_keep: Any = positive_or_none(5)


class Exporter(abc.ABC):
    """Exports models after evaluations."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the directory in ``export``."""

    @abc.abstractmethod
    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> Any:
        """Export a checkpoint.

        Args:
            estimator: the `Estimator`.
            export_path: the directory for exports.
            checkpoint_path: the checkpoint that was evaluated.
            eval_result: the results of the evaluation.
            is_the_final_export: whether the training has ended.

        Returns:
            The path of the export, or None if there is none.
        """


@attrs.define(eq=False)
class _SavedModelExporter(Exporter):
    """An exporter of SavedModels; a subclass says which checkpoints it exports."""

    name: str
    serving_input_receiver_fn: Callable[[], Any]
    assets_extra: Mapping[str, str] | None = None
    as_text: bool = False
    exports_to_keep: int | None = attrs.field(default=None, init=False)

    @abc.abstractmethod
    def _is_due(self, estimator: Any, eval_result: Mapping[str, Any], is_final: bool) -> bool:
        """Return whether to export the checkpoint with these results."""

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Mapping[str, Any],
        is_the_final_export: bool,
    ) -> Any:
        """Export the checkpoint if it is due, and remove older exports."""
        if not self._is_due(estimator, eval_result, is_the_final_export):
            return None
        path = estimator.export_saved_model(
            export_path,
            self.serving_input_receiver_fn,
            assets_extra=self.assets_extra,
            as_text=self.as_text,
            checkpoint_path=checkpoint_path,
        )
        if self.exports_to_keep:
            _remove_old(export_path, self.exports_to_keep)
        return path


@attrs.define(eq=False)
class LatestExporter(_SavedModelExporter):
    """Exports every evaluated checkpoint, and keeps the latest.

    Args:
        name: the name of the directory in ``export``.
        serving_input_receiver_fn: returns a `export.ServingInputReceiver`.
        assets_extra: files to copy, by their paths in ``assets.extra``.
        as_text: whether to write the graph as text.
        exports_to_keep: the number of exports to keep; None for all.
    """

    exports_to_keep: int | None = _keep

    def _is_due(self, estimator: Any, eval_result: Mapping[str, Any], is_final: bool) -> bool:
        return True


@attrs.define(eq=False)
class FinalExporter(_SavedModelExporter):
    """Exports the checkpoint at the end of the training.

    Args:
        name: the name of the directory in ``export``.
        serving_input_receiver_fn: returns a `export.ServingInputReceiver`.
        assets_extra: files to copy, by their paths in ``assets.extra``.
        as_text: whether to write the graph as text.
    """

    def _is_due(self, estimator: Any, eval_result: Mapping[str, Any], is_final: bool) -> bool:
        return is_final


def _has_smaller_loss(best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]) -> bool:
    for result in (best_eval_result, current_eval_result):
        if "loss" not in result:
            raise ValueError(f"the results of an evaluation have no loss: {dict(result)}. Give a compare_fn.")
    return bool(current_eval_result["loss"] < best_eval_result["loss"])


@attrs.define(eq=False)
class BestExporter(_SavedModelExporter):
    """Exports each checkpoint that is better than all before.

    Args:
        name: the name of the directory in ``export``.
        serving_input_receiver_fn: returns a `export.ServingInputReceiver`.
        event_file_pattern: the event files in ``model_dir`` with the results of earlier evaluations; None to compare
            only with those of this process.
        compare_fn: a function of ``best_eval_result`` and ``current_eval_result`` that returns whether the current one
            is better; by default, the smaller loss.
        assets_extra: files to copy, by their paths in ``assets.extra``.
        as_text: whether to write the graph as text.
        exports_to_keep: the number of exports to keep; None for all.

    Raises:
        ValueError: if `compare_fn` has other arguments.
    """

    name: str = "best_exporter"
    serving_input_receiver_fn: Any = None
    event_file_pattern: str | None = "eval/*.tfevents.*"
    compare_fn: Callable[..., bool] = attrs.field(default=_has_smaller_loss)
    assets_extra: Mapping[str, str] | None = None
    as_text: bool = False
    exports_to_keep: int | None = _keep
    _best: Mapping[str, Any] | None = attrs.field(default=None, init=False)
    _has_exported: bool = attrs.field(default=False, init=False)
    _model_dir: str | None = attrs.field(default=None, init=False)

    @compare_fn.validator
    def _check_compare_fn(self, attribute: Any, value: Any) -> None:
        names = argument_names(value)
        if set(names) != {"best_eval_result", "current_eval_result"}:
            raise ValueError(f"compare_fn must take best_eval_result and current_eval_result, but takes {names}.")

    def _is_due(self, estimator: Any, eval_result: Mapping[str, Any], is_final: bool) -> bool:
        """Return whether the results are the best ones, or the first ones of this process."""
        if self._model_dir != estimator.model_dir and self.event_file_pattern:
            self._model_dir = estimator.model_dir
            self._best = self._best_in(os.path.join(estimator.model_dir, self.event_file_pattern))
        if self._has_exported and not self._is_better(eval_result):
            return False
        self._best, self._has_exported = eval_result, True
        return True

    def _is_better(self, result: Mapping[str, Any]) -> bool:
        return self._best is None or self.compare_fn(best_eval_result=self._best, current_eval_result=result)

    def _best_in(self, pattern: str) -> Mapping[str, Any] | None:
        """Return the best results in event files."""
        for path in tf.io.gfile.glob(pattern):
            for event in tf.compat.v1.train.summary_iterator(path):
                scalars = {each.tag: each.simple_value for each in event.summary.value if each.HasField("simple_value")}
                if scalars and self._is_better(scalars):
                    self._best = scalars
        return self._best


def _remove_old(directory: str, number_to_keep: int) -> None:
    """Remove the oldest exports; other files in the directory stay."""
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(directory)]
    exports = sorted(name for name in names if name.isdigit() and len(name) == 10)
    for name in exports[:-number_to_keep]:
        tf.io.gfile.rmtree(os.path.join(directory, name))
