"""Export models for TensorFlow Serving or as a single file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

import tpk.predict
from tpk_tensorpack.predict.config import PredictConfig

__all__ = ["ModelExporter"]


class ModelExporter:
    """Export a model with its values for other programs.

    Args:
        config: the model, its variables' values, inputs and outputs.

    Example:
        ```python
        ModelExporter(config).export_compact("model.pb")
        ModelExporter(config).export_serving("exported/1")
        ```
    """

    def __init__(self, config: PredictConfig) -> None:
        self.config = config

    def export_compact(self, filename: str, optimize: bool = True, toco_compatible: bool = False) -> None:
        """Write a ``GraphDef`` with constants instead of variables; an existing file is replaced.

        Args:
            filename: the path of the file.
            optimize: ignored: only the ops needed for the outputs are written, and runtimes optimize the graph
                themselves.
            toco_compatible: ignored: TensorFlow Lite accepts the file anyway.

        Raises:
            CheckpointError: a value does not fit the model.
            ConfigError: the file cannot be written.
        """
        beside = Path(f"{filename}.{os.getpid()}.new")
        tpk.predict.ModelExporter(self.config).export_frozen(beside)
        os.replace(beside, filename)

    def export_serving(
        self, filename: str, tags: Sequence[str] | None = None, signature_name: str = "prediction_pipeline"
    ) -> None:
        """Write a SavedModel; its inputs and outputs have the names of the tensors, such as ``image:0``.

        Args:
            filename: a new or empty directory.
            tags: the tags of the graph; by default the serving tag.
            signature_name: the name of the signature.

        Raises:
            CheckpointError: a value does not fit the model.
        """
        built = self.config.build_graph()
        saved_model = tf.compat.v1.saved_model
        with built.create_session() as sess:
            (tower,) = built.towers
            inputs = {tensor.name: tensor for tensor in tower.inputs.values()}
            outputs = {tensor.name: tensor for tensor in tower.outputs.values()}
            signature = saved_model.predict_signature_def(inputs, outputs)
            builder = saved_model.Builder(filename)
            builder.add_meta_graph_and_variables(
                sess,
                [saved_model.tag_constants.SERVING] if tags is None else list(tags),
                {signature_name: signature},
                clear_devices=True,
            )
            builder.save()
