"""Exporting the graphs of a model and its variables as a SavedModel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tpk_estimator.export import signatures
from tpk_estimator.model import Model, create_global_step
from tpk_estimator.spec import EstimatorSpec, ModeKeys

v1 = tf.compat.v1

# The first mode also saves the variables: a training has all that are in a checkpoint.
_TAGS = {
    ModeKeys.TRAIN: "train",
    ModeKeys.EVAL: "eval",
    ModeKeys.PREDICT: "serve",
}
_TRAIN_OP = "saved_model_train_op"
_ATTEMPTS = 10


def export_saved_model(
    model: Model,
    receiver_fns: Mapping[str, Callable[[], Any]],
    export_dir_base: Any,
    checkpoint_path: str,
    *,
    assets_extra: Mapping[str, str] | None = None,
    as_text: bool = False,
) -> bytes:
    """Write a SavedModel to a directory that is named after the time.

    Args:
        model: the model.
        receiver_fns: by mode, a function that returns the features and the tensors of a request.
        export_dir_base: the directory of the new one.
        checkpoint_path: the values of the variables.
        assets_extra: files to copy, by their paths in ``assets.extra``.
        as_text: whether to write the graphs as text.

    Returns:
        The path of the new directory.

    Raises:
        ValueError: if there is no mode, or the checkpoint lacks a variable.
    """
    if not any(receiver_fns.get(mode) for mode in _TAGS):
        raise ValueError(f"nothing to export: give a function for one of the modes {', '.join(map(repr, _TAGS))}.")
    directory = _new_directory(os.fsdecode(export_dir_base))
    temporary = os.path.join(os.path.dirname(directory), f"temp-{os.path.basename(directory)}")
    builder = v1.saved_model.Builder(temporary)
    saves_variables = True
    for mode, tag in _TAGS.items():
        if receiver_fns.get(mode):
            with tf.Graph().as_default():
                create_global_step(model.config)
                receiver = receiver_fns[mode]()
                spec = model.call_model_fn(receiver.features, getattr(receiver, "labels", None), mode)
                options = {
                    "tags": [tag],
                    "signature_def_map": _signatures(spec, receiver),
                    "assets_collection": v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
                    "main_op": spec.scaffold.local_init_op or v1.train.Scaffold.default_local_init_op(),
                    "saver": spec.scaffold.saver or v1.train.Saver(sharded=True),
                    "strip_default_attrs": True,  # Older versions of TensorFlow may lack attributes.
                }
                with v1.Session(config=model.config.session_config) as session:
                    _restore(options["saver"], session, checkpoint_path)
                    if saves_variables:
                        builder.add_meta_graph_and_variables(session, **options)
                    else:
                        builder.add_meta_graph(**options)
            saves_variables = False
    builder.save(as_text)
    for name, source in (assets_extra or {}).items():
        path = os.path.join(temporary, "assets.extra", name)
        tf.io.gfile.makedirs(os.path.dirname(path))
        tf.io.gfile.copy(source, path)
    tf.io.gfile.rename(temporary, directory)
    return os.fsencode(directory)


def _signatures(spec: EstimatorSpec, receiver: Any) -> dict[str, Any]:
    if spec.mode == ModeKeys.PREDICT:
        return signatures(spec.export_outputs, spec.predictions, receiver)
    outputs = {"loss": spec.loss}
    predictions = spec.predictions if isinstance(spec.predictions, Mapping) else {"": spec.predictions}
    outputs |= {f"predictions/{name}".rstrip("/"): value for name, value in predictions.items()}
    for name, (value, update) in spec.eval_metric_ops.items():
        outputs |= {f"metrics/{name}/value": value, f"metrics/{name}/update_op": _as_tensor(update)}
    if spec.train_op is not None:
        v1.add_to_collection(_TRAIN_OP, spec.train_op)
    is_training = spec.mode == ModeKeys.TRAIN
    signature = v1.saved_model.build_signature_def(
        {name: v1.saved_model.build_tensor_info(each) for name, each in receiver.receiver_tensors.items()},
        {name: v1.saved_model.build_tensor_info(each) for name, each in outputs.items()},
        f"tensorflow/supervised/{'training' if is_training else 'eval'}",
    )
    return {"train" if is_training else "eval": signature}


def _as_tensor(update: Any) -> Any:
    if not isinstance(update, tf.Operation):
        return update
    with tf.control_dependencies([update]):
        return tf.constant([], name="metric_op_wrapper")


def _restore(saver: Any, session: Any, checkpoint_path: str) -> None:
    try:
        saver.restore(session, checkpoint_path)
    except tf.errors.NotFoundError as error:
        raise ValueError(
            f"the checkpoint {checkpoint_path} lacks a variable of the exported model: {error.message.splitlines()[0]}"
        ) from error


def _new_directory(base: str) -> str:
    """Return the path of a directory that does not exist, named after the seconds since 1970."""
    for _ in range(_ATTEMPTS):
        path = os.path.join(base, str(int(time.time())))
        if not tf.io.gfile.exists(path):
            return path
        time.sleep(1)
    raise RuntimeError(f"other exports take every second in {base!r}: export less often.")
