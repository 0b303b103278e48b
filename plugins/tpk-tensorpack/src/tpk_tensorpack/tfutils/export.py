"""Export of models: to TensorFlow Serving, and as one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

import tpk.predict
from tpk.predict.export import without_deprecations
from tpk_tensorpack.predict.config import PredictConfig

__all__ = ["ModelExporter"]


class ModelExporter:
    """Writes a model with its values, for other programs.

    Args:
        config: the model, its values, inputs and outputs.

    Example:
        ```python
        ModelExporter(config).export_compact("model.pb")
        ModelExporter(config).export_serving("exported/1")
        ```
    """

    def __init__(self, config: PredictConfig) -> None:
        self.config = config

    def export_compact(self, filename: str, optimize: bool = True, toco_compatible: bool = False) -> None:
        """Write a ``GraphDef`` with constants for the variables; a file that is there is replaced.

        Args:
            filename: the file.
            optimize: has no meaning here: what is written is what the outputs need, and whoever runs it optimizes it.
            toco_compatible: has no meaning here: TensorFlow Lite takes what is written.

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
        """Write a SavedModel, whose inputs and outputs are called as the tensors are, such as ``image:0``.

        Args:
            filename: the directory, which is not there yet, or empty.
            tags: of the graph; by default that of serving.
            signature_name: of the signature.

        Raises:
            CheckpointError: a value does not fit the model.
        """
        built = self.config.build_graph()
        saved_model = tf.compat.v1.saved_model
        with built.create_session() as sess, without_deprecations():
            (tower,) = built.towers
            inputs, outputs = (
                {tensor.name: saved_model.build_tensor_info(tensor) for tensor in tensors}
                for tensors in (tower.inputs.values(), tower.outputs.values())
            )
            signature = saved_model.build_signature_def(inputs, outputs, saved_model.PREDICT_METHOD_NAME)
            builder = saved_model.Builder(filename)
            builder.add_meta_graph_and_variables(
                sess,
                [saved_model.tag_constants.SERVING] if tags is None else list(tags),
                {signature_name: signature},
                clear_devices=True,
            )
            builder.save()
