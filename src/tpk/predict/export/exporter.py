"""Exporter of trained models, for programs that know nothing of tpk: SavedModel, frozen graph, TensorFlow Lite."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpk.errors import ConfigError
from tpk.predict.config import PredictConfig, PredictGraph
from tpk.predict.export.files import new_path, write_file
from tpk.predict.export.signature import DEFAULT_NAME, ExportedSignature, Signature, resolve_signatures

logger = logging.getLogger(__name__)

GraphKeys = tf.compat.v1.GraphKeys

_LACKING = re.compile(r"^(?:TF Select|Custom) ops: (.+)$", re.MULTILINE)


class ModelExporter:
    """Writes a trained model in formats that are used without tpk.

    What is written holds the weights, and appears as a whole: an export that fails leaves nothing. What is at its place
    already is never touched.

    Args:
        config: the model, its weights, inputs and outputs.

    Raises:
        ConfigError: if it is no `PredictConfig`.

    Example:
        ```python
        config = tpk.PredictConfig(model=Model(), session_init="runs/cats", output_names=["probabilities"])
        signatures = tpk.ModelExporter(config).export_savedmodel("exports/cats/1")
        print(signatures["serving_default"])  # (image: float32 [?, 28, 28]) -> (probabilities: float32 [?, 10])

        loaded = tf.saved_model.load("exports/cats/1")  # anywhere else
        probabilities = loaded.signatures["serving_default"](image=images)["probabilities"]
        ```
    """

    def __init__(self, config: PredictConfig) -> None:
        if not isinstance(config, PredictConfig):
            raise ConfigError(f"ModelExporter({config!r}): expected a tpk.PredictConfig.")
        self.config = config

    def export_savedmodel(
        self,
        directory: str | os.PathLike[str],
        signatures: Mapping[str, Signature] | None = None,
        tags: Sequence[str] = ("serve",),
    ) -> dict[str, ExportedSignature]:
        """Write a SavedModel, with the files and tables that the model needs.

        Args:
            directory: where to; it must not exist.
            signatures: what it offers, by name; by default ``"serving_default"``, with the inputs and outputs of the
                config. Several are functions over one graph, which share its weights.
            tags: by which programs choose one of several graphs; TensorFlow Serving and Keras want ``"serve"``.

        Returns:
            The signatures, with shapes and types; they are logged, too.

        Raises:
            ConfigError: if the directory exists or cannot be written, or an argument cannot be.
            CheckpointError: if the weights do not fit the model.
            TowerError: if the model has no tensor of a name.
            InputError: if outputs depend on what is not among the inputs.
        """
        if isinstance(tags, str) or not tags or not all(isinstance(tag, str) for tag in tags):
            raise ConfigError(f'tags={tags!r}: expected a list of names, such as ["serve"].')
        with new_path(directory) as path, self._session() as (built, sess):
            resolved = resolve_signatures(built, signatures)
            _write_savedmodel(path, built.graph, sess, resolved, tags)
        _log(directory, "SavedModel", resolved)
        return resolved

    def export_frozen(self, path: str | os.PathLike[str]) -> ExportedSignature:
        """Write a ``GraphDef`` with constants for the weights, the inputs, and only what the outputs need besides.

        Args:
            path: the file, usually ``….pb``; it must not exist.

        Returns:
            Inputs and outputs; the name of each `tf.TensorSpec` is that of the tensor in the file. It is logged, too.

        Raises:
            ConfigError: if the file exists or cannot be written, or the outputs need what cannot be frozen, such as a
                table.
            CheckpointError: if the weights do not fit the model.
            TowerError: if the model has no tensor of a name.
            InputError: if the outputs depend on what is not among the inputs.

        Example:
            ```python
            signature = exporter.export_frozen("cats.pb")
            graph_def = tf.compat.v1.GraphDef.FromString(Path("cats.pb").read_bytes())
            names = [spec.name for spec in signature.outputs.values()]
            outputs = tf.graph_util.import_graph_def(graph_def, {"image:0": images}, names)
            ```
        """
        with new_path(path) as beside, self._session() as (built, sess):
            signature = resolve_signatures(built, None)[DEFAULT_NAME]
            write_file(beside, _freeze(built, sess).SerializeToString())
        _log(path, "frozen graph", {"": signature})
        return signature

    def export_tflite(
        self, path: str | os.PathLike[str], configure: Callable[[Any], None] | None = None
    ) -> ExportedSignature:
        """Write a model for TensorFlow Lite, with the signature ``"serving_default"``.

        Args:
            path: the file, usually ``….tflite``; it must not exist.
            configure: takes the `tf.lite.TFLiteConverter` before it converts, e.g. to set ``optimizations``.

        Returns:
            Inputs and outputs; they are logged, too.

        Raises:
            ConfigError: if the file exists or cannot be written, or TensorFlow Lite lacks operations; they are named.
            CheckpointError: if the weights do not fit the model.
            TowerError: if the model has no tensor of a name.
            InputError: if the outputs depend on what is not among the inputs.
        """
        with new_path(path) as beside, tempfile.TemporaryDirectory() as directory:
            savedmodel = Path(directory, "savedmodel")
            with self._session() as (built, sess):
                resolved = resolve_signatures(built, None)
                _write_savedmodel(savedmodel, built.graph, sess, resolved, ["serve"])
            write_file(beside, _convert_to_tflite(str(savedmodel), configure))
        _log(path, "TensorFlow Lite", resolved)
        return resolved[DEFAULT_NAME]

    @contextmanager
    def _session(self) -> Iterator[tuple[PredictGraph, Any]]:
        built = self.config.build_graph()
        sess = built.create_session()
        try:
            yield built, sess
        finally:
            sess.close()


def _write_savedmodel(
    path: Path, graph: Any, sess: Any, signatures: Mapping[str, ExportedSignature], tags: Sequence[str]
) -> None:
    builder = tf.compat.v1.saved_model.Builder(str(path))
    with graph.as_default():
        initialize = tf.group(tf.compat.v1.local_variables_initializer(), tf.compat.v1.tables_initializer())
        try:
            builder.add_meta_graph_and_variables(
                sess,
                list(tags),
                {name: signature.as_proto() for name, signature in signatures.items()},
                assets_collection=graph.get_collection(GraphKeys.ASSET_FILEPATHS) or None,
                main_op=initialize,
                # Where it is used, there may be no such device.
                clear_devices=True,
                strip_default_attrs=True,
            )
            builder.save()
        except tf.errors.OpError as error:
            raise ConfigError(f"the SavedModel could not be written: {error.message}") from error


def _freeze(built: PredictGraph, sess: Any) -> Any:
    # What is left is what these need. An input that no output needs is there as well, as it is in a SavedModel.
    names = list(dict.fromkeys(tensor.op.name for tensor in (*built.outputs.values(), *built.inputs.values())))
    with without_deprecations():
        frozen = tf.compat.v1.graph_util.convert_variables_to_constants(sess, built.graph.as_graph_def(), names)
    functions = [node for function in frozen.library.function for node in function.node_def]
    tables = sorted({node.name for node in [*frozen.node, *functions] if "HashTable" in node.op})
    if tables:
        raise ConfigError(
            f"the outputs {', '.join(built.outputs)} need the tables {', '.join(tables)}, and nothing would fill them "
            "in a frozen graph. Export a SavedModel, or name outputs that do not need them."
        )
    for node in frozen.node:
        node.device = ""
        # What it was to be placed beside may be gone.
        node.attr.pop("_class", None)
    return frozen


def _convert_to_tflite(savedmodel: str, configure: Callable[[Any], None] | None) -> bytes:
    converter = tf.lite.TFLiteConverter.from_saved_model(savedmodel, signature_keys=[DEFAULT_NAME])
    if configure is not None:
        configure(converter)
    try:
        converted: bytes = converter.convert()
    # The class of the converter's own errors is not public.
    except Exception as error:
        lacking = sorted({name for found in _LACKING.findall(str(error)) for name in found.split(", ")})
        if not lacking:
            raise ConfigError(
                f"TensorFlow Lite cannot convert the model: {str(error).strip().partition(chr(10))[0]}"
            ) from error
        raise ConfigError(
            f"TensorFlow Lite lacks operations that the outputs need: {', '.join(lacking)}. Build the inference tower "
            "from others, name outputs that do not need them, or let `configure` set target_spec.supported_ops so that "
            "TensorFlow's own kernels are called."
        ) from error
    return converted


def _log(path: str | os.PathLike[str], kind: str, signatures: Mapping[str, ExportedSignature]) -> None:
    described = "; ".join(f"{name}{signature}" for name, signature in signatures.items())
    logger.info("exported to %s (%s): %s", os.fspath(path), kind, described)


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Within the context, TensorFlow logs no deprecation warnings."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return "deprecated" not in str(record.msg)

    log = tf.get_logger()
    log.addFilter(is_wanted)
    try:
        yield
    finally:
        log.removeFilter(is_wanted)
