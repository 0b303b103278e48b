"""Export of trained models for programs without tpk: SavedModel, frozen graph, TensorFlow Lite."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import tensorflow as tf

from tpk.argument_checks import given
from tpk.durable_files import sync_directory, sync_file
from tpk.errors import ConfigError
from tpk.predict.inputs import check_feeds_suffice, inputs_beneath
from tpk.predict.online import check_names, tensors_by_key
from tpk.predict.predict_config import PredictConfig, PredictGraph

logger = logging.getLogger(__name__)

GraphKeys = tf.compat.v1.GraphKeys

DEFAULT_NAME = "serving_default"
"""The signature that most programs look for."""

_RESERVED = ("__saved_model_init_op", "__saved_model_train_op")
"""Names that the SavedModel format uses itself."""

_LACKING = re.compile(r"^(?:TF Select|Custom) ops: (.+)$", re.MULTILINE)

_PATTERN_CHARACTERS = frozenset("[]*?\\")


@attrs.frozen
class Signature:
    """A function of an exported model, described by the names of its inputs and outputs.

    Attributes:
        output_names: names of tensors in the tower, or a mapping from exported names to such names.
        input_names: the same for the inputs; None for the inputs of the model that the outputs depend on.

    Raises:
        ConfigError: if the names are invalid.

    Example:
        ```python
        Signature({"probabilities": "softmax/output"}, input_names=["image"])
        ```
    """

    output_names: Sequence[str] | Mapping[str, str]
    input_names: Sequence[str] | Mapping[str, str] | None = None

    def __attrs_post_init__(self) -> None:
        for option, names in {"output_names": self.output_names, **given(input_names=self.input_names)}.items():
            check_names(f"Signature: {option}", names)


@attrs.frozen
class ExportedSignature:
    """A function of an exported model, with the shapes and types of its inputs and outputs.

    As a string, it reads ``(image: float32 [?, 28, 28]) -> (probabilities: float32 [?, 10])``.

    Attributes:
        inputs: a `tf.TensorSpec` for each input, by its exported name; the spec has the name of the tensor in the
            exported graph, such as ``"image:0"``.
        outputs: the same for the outputs.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]

    def __str__(self) -> str:
        return f"({_specs_text(self.inputs)}) -> ({_specs_text(self.outputs)})"

    def as_proto(self) -> Any:
        """Return the ``SignatureDef`` for a SavedModel."""
        return tf.compat.v1.saved_model.build_signature_def(
            inputs={name: _tensor_info(spec) for name, spec in self.inputs.items()},
            outputs={name: _tensor_info(spec) for name, spec in self.outputs.items()},
            method_name="tensorflow/serving/predict",
        )


class ModelExporter:
    """Writes a trained model, with its weights, in formats that do not need tpk.

    A failed export leaves no files. Existing files and directories are never changed.

    Args:
        config: the model, its weights, inputs and outputs.

    Raises:
        ConfigError: if `config` is not a `PredictConfig`.

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
            directory: must not exist.
            signatures: the functions of the model, by name; by default ``"serving_default"``, with the inputs and
                outputs of the config. They share the weights.
            tags: programs choose a graph by its tags; TensorFlow Serving and Keras expect ``"serve"``.

        Returns:
            The signatures, with shapes and types, which are also logged.

        Raises:
            ConfigError: if the directory exists or cannot be written, or an argument is invalid.
            CheckpointError: if the weights do not fit the model.
            TowerError: if the model has no tensor with a given name.
            InputError: if outputs depend on tensors that are not inputs.
        """
        if isinstance(tags, str) or not tags or not all(isinstance(tag, str) for tag in tags):
            raise ConfigError(f'tags={tags!r}: expected a list of names, such as ["serve"].')
        with _new_path(directory) as path, self._session() as (built, sess):
            resolved = _resolve_all(built, signatures)
            _write_savedmodel(path, built.graph, sess, resolved, tags)
        _log(directory, "SavedModel", resolved)
        return resolved

    def export_frozen(self, path: str | os.PathLike[str]) -> ExportedSignature:
        """Write a ``GraphDef`` with constants for the weights, and only the ops that the outputs need.

        Args:
            path: the file, usually ``….pb``; must not exist.

        Returns:
            Inputs and outputs, which are also logged. Each `tf.TensorSpec` has the name of the tensor in the file.

        Raises:
            ConfigError: if the file exists or cannot be written, or the outputs need something that cannot be frozen,
                such as a table.
            CheckpointError, TowerError, InputError: see `export_savedmodel`.

        Example:
            ```python
            signature = exporter.export_frozen("cats.pb")
            graph_def = tf.compat.v1.GraphDef.FromString(Path("cats.pb").read_bytes())
            names = [spec.name for spec in signature.outputs.values()]
            outputs = tf.graph_util.import_graph_def(graph_def, {"image:0": images}, names)
            ```
        """
        with _new_path(path) as beside, self._session() as (built, sess):
            signature = _resolve_all(built, None)[DEFAULT_NAME]
            _write_file(beside, _freeze(built, sess).SerializeToString())
        _log(path, "frozen graph", {"": signature})
        return signature

    def export_tflite(
        self, path: str | os.PathLike[str], configure: Callable[[Any], None] | None = None
    ) -> ExportedSignature:
        """Write a model for TensorFlow Lite, with the signature ``"serving_default"``.

        Args:
            path: the file, usually ``….tflite``; must not exist.
            configure: called with the `tf.lite.TFLiteConverter` before the conversion, e.g. to set ``optimizations``.

        Returns:
            Inputs and outputs, which are also logged.

        Raises:
            ConfigError: if the file exists or cannot be written, or TensorFlow Lite lacks operations; the message names
                them.
            CheckpointError, TowerError, InputError: see `export_savedmodel`.
        """
        with _new_path(path) as beside, tempfile.TemporaryDirectory() as directory:
            savedmodel = Path(directory, "savedmodel")
            with self._session() as (built, sess):
                resolved = _resolve_all(built, None)
                _write_savedmodel(savedmodel, built.graph, sess, resolved, ["serve"])
            _write_file(beside, _convert_to_tflite(str(savedmodel), configure))
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


def _resolve_all(built: PredictGraph, signatures: Mapping[str, Signature] | None) -> dict[str, ExportedSignature]:
    """Return the exported signatures; for None, a single one with the inputs and outputs of the config."""
    if signatures is None:
        return {DEFAULT_NAME: ExportedSignature(_specs(built.inputs), _specs(built.outputs))}
    if not isinstance(signatures, Mapping) or not signatures:
        raise ConfigError(
            f"signatures={signatures!r}: expected a mapping of names to signatures, such as "
            f'{{"{DEFAULT_NAME}": Signature(["probabilities"])}}.'
        )
    for name, signature in signatures.items():
        if not isinstance(name, str) or not name or name in _RESERVED:
            raise ConfigError(
                f"a signature cannot have the name {name!r}. Call it {DEFAULT_NAME!r}, or name it after its purpose."
            )
        if not isinstance(signature, Signature):
            raise ConfigError(
                f"the signature {name!r} is {signature!r}; expected a Signature(output_names, input_names)."
            )
    return {name: _resolve(built, signature) for name, signature in signatures.items()}


def _resolve(built: PredictGraph, signature: Signature) -> ExportedSignature:
    handle = built.towers[0].handle
    outputs = tensors_by_key(handle, signature.output_names)
    if signature.input_names is not None:
        inputs = tensors_by_key(handle, signature.input_names)
        check_feeds_suffice(list(inputs.values()), list(outputs.values()))
    else:
        inputs = inputs_beneath(outputs.values(), built.tower_func.input_names, handle.inputs)
    return ExportedSignature(_specs(inputs), _specs(outputs))


def _specs(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tf.TensorSpec(tensor.shape, tensor.dtype, tensor.name) for key, tensor in tensors.items()}


def _tensor_info(spec: Any) -> Any:
    return tf.compat.v1.TensorInfo(
        name=spec.name, dtype=spec.dtype.as_datatype_enum, tensor_shape=spec.shape.as_proto()
    )


def _specs_text(specs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {spec.dtype.name} {_shape_text(spec.shape)}" for name, spec in specs.items())


def _shape_text(shape: Any) -> str:
    if shape.rank is None:
        return "of any shape"
    return f"[{', '.join('?' if size is None else str(size) for size in shape.as_list())}]"


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
                # The devices may not exist where the model is used.
                clear_devices=True,
                strip_default_attrs=True,
            )
            builder.save()
        except tf.errors.OpError as error:
            raise ConfigError(f"the SavedModel could not be written: {error.message}") from error


def _freeze(built: PredictGraph, sess: Any) -> Any:
    # The frozen graph keeps the ops that these need, and unused inputs, as a SavedModel does.
    names = list(dict.fromkeys(tensor.op.name for tensor in (*built.outputs.values(), *built.inputs.values())))
    with without_deprecations():
        frozen = tf.compat.v1.graph_util.convert_variables_to_constants(sess, built.graph.as_graph_def(), names)
    functions = [node for function in frozen.library.function for node in function.node_def]
    tables = sorted({node.name for node in [*frozen.node, *functions] if "HashTable" in node.op})
    if tables:
        raise ConfigError(
            f"the outputs {', '.join(built.outputs)} need the tables {', '.join(tables)}, which would be empty in a "
            "frozen graph. Export a SavedModel, or choose outputs that do not need them."
        )
    for node in frozen.node:
        node.device = ""
        # The op to colocate with may be gone.
        node.attr.pop("_class", None)
    return frozen


def _convert_to_tflite(savedmodel: str, configure: Callable[[Any], None] | None) -> bytes:
    converter = tf.lite.TFLiteConverter.from_saved_model(savedmodel, signature_keys=[DEFAULT_NAME])
    if configure is not None:
        configure(converter)
    try:
        converted: bytes = converter.convert()
    except Exception as error:  # The class of the converter's errors is not public.
        lacking = sorted({name for found in _LACKING.findall(str(error)) for name in found.split(", ")})
        if not lacking:
            raise ConfigError(
                f"TensorFlow Lite cannot convert the model: {str(error).strip().partition(chr(10))[0]}"
            ) from error
        raise ConfigError(
            f"TensorFlow Lite lacks operations that the outputs need: {', '.join(lacking)}. Build the inference tower "
            "without them, choose other outputs, or let `configure` set target_spec.supported_ops so that TensorFlow's "
            "own kernels are called."
        ) from error
    return converted


def _log(path: str | os.PathLike[str], kind: str, signatures: Mapping[str, ExportedSignature]) -> None:
    described = "; ".join(f"{name}{signature}" for name, signature in signatures.items())
    logger.info("exported to %s (%s): %s", os.fspath(path), kind, described)


@contextmanager
def without_deprecations() -> Iterator[None]:
    """Suppress TensorFlow's deprecation warnings in a block."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return "deprecated" not in str(record.msg)

    log = tf.get_logger()
    log.addFilter(is_wanted)
    try:
        yield
    finally:
        log.removeFilter(is_wanted)


@contextmanager
def _new_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path beside `path` to write a file or directory to, and rename it to `path` at the end.

    If the block fails, no files are left. Missing parent directories are created.

    Raises:
        ConfigError: if `path` exists, cannot be written, or could not be read by TensorFlow.
    """
    target = Path(os.path.abspath(path))
    _check_is_new(target)
    if set(str(target)) & _PATTERN_CHARACTERS:
        raise ConfigError(
            f"an export to {str(path)!r} could not be read again, because TensorFlow treats a path with one of "
            f"{' '.join(sorted(_PATTERN_CHARACTERS))} as a pattern. Choose another path."
        )
    missing_parents = [parent for parent in target.parents if not parent.exists()]
    try:
        with _write_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.TemporaryDirectory(
                prefix=f".{target.name}.", dir=target.parent, ignore_cleanup_errors=True
            )
        with scratch:
            written = Path(scratch.name, target.name)
            yield written
            with _write_errors(target):
                for each in (written, *written.rglob("*")):
                    (sync_directory if each.is_dir() else sync_file)(each)
                _check_is_new(target)
                os.rename(written, target)
                sync_directory(target.parent)
    finally:
        for parent in missing_parents:
            with suppress(OSError):  # It is not empty.
                parent.rmdir()


def _write_file(path: Path, content: bytes) -> None:
    with _write_errors(path):
        path.write_bytes(content)


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path} could not be written: {error}") from error


def _check_is_new(path: Path) -> None:
    if os.path.lexists(path):
        raise ConfigError(f"{path} already exists and is not overwritten. Export to another path, or remove it first.")
