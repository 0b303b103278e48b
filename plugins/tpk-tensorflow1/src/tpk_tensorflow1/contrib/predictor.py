"""`tf.contrib.predictor`: functions of arrays, made from a SavedModel or an Estimator."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

__all__ = ["from_estimator", "from_saved_model"]

v1 = tf.compat.v1


class Predictor:
    """A function of arrays by name, which returns arrays by name.

    Args:
        session: runs the graph.
        feed_tensors: the tensors of the inputs by name. An input that has a default may be absent from a call.
        fetch_tensors: the tensors of the outputs by name.
    """

    def __init__(self, session: v1.Session, feed_tensors: dict[str, Any], fetch_tensors: dict[str, Any]) -> None:
        self.session, self.feed_tensors, self.fetch_tensors = session, feed_tensors, fetch_tensors
        self.graph = session.graph

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(input_dict) - set(self.feed_tensors))
        if unknown:
            raise ValueError(f"the predictor has no inputs {unknown}; it has {sorted(self.feed_tensors)}")
        return self.session.run(self.fetch_tensors, {self.feed_tensors[name]: input_dict[name] for name in input_dict})


def from_saved_model(
    export_dir: str,
    signature_def_key: str | None = None,
    signature_def: Any = None,
    input_names: Mapping[str, str] | None = None,
    output_names: Mapping[str, str] | None = None,
    tags: str | None = None,
    graph: tf.Graph | None = None,
    config: Any = None,
) -> Predictor:
    """Return a predictor of a SavedModel.

    Args:
        export_dir: the directory of the SavedModel.
        signature_def_key: the key of a signature, by default ``"serving_default"``.
        signature_def: a signature, instead of its key.
        input_names: instead of a signature, the names of the tensors of the inputs, such as ``{"x": "inputs:0"}``.
        output_names: the same for the outputs.
        tags: the tags of the graph, separated by commas; by default ``"serve"``.
        graph: the graph into which the model is loaded; by default a new one.
        config: the `ConfigProto` of the session.

    Raises:
        ValueError: the SavedModel does not have the signature, or several of key, signature and names are given.
    """
    given = [each is not None for each in (signature_def_key, signature_def, input_names)]
    if sum(given) > 1 or (input_names is None) != (output_names is None):
        raise ValueError("pass at most one of signature_def_key, signature_def, and input_names with output_names")
    session = v1.Session(graph=graph or tf.Graph(), config=config)
    with session.graph.as_default():
        signatures = v1.saved_model.load(session, (tags or "serve").split(","), export_dir).signature_def
    if input_names is None or output_names is None:
        key = signature_def_key or "serving_default"
        if signature_def is None and key not in signatures:
            raise ValueError(f"{export_dir} has no signature {key!r}; it has {sorted(signatures)}")
        signature = signature_def or signatures[key]
        input_names = {name: tensor.name for name, tensor in signature.inputs.items()}
        output_names = {name: tensor.name for name, tensor in signature.outputs.items()}
    feeds, fetches = (
        {name: session.graph.get_tensor_by_name(tensor) for name, tensor in names.items()}
        for names in (input_names, output_names)
    )
    return Predictor(session, feeds, fetches)


def from_estimator(
    estimator: Any,
    serving_input_receiver_fn: Any,
    output_key: str | None = None,
    graph: tf.Graph | None = None,
    config: Any = None,
) -> Predictor:
    """Return a predictor of an Estimator, with the variables of its latest checkpoint; see `from_saved_model`.

    Args:
        estimator: the Estimator.
        serving_input_receiver_fn: makes the inputs, as for `Estimator.export_saved_model`.
        output_key: the key of one of the model's `export_outputs`, by default ``"serving_default"``.
        graph: the graph into which the model is loaded; by default a new one.
        config: the `ConfigProto` of the session.
    """
    with tempfile.TemporaryDirectory() as directory:
        exported = estimator.export_saved_model(directory, serving_input_receiver_fn)
        return from_saved_model(exported, output_key, graph=graph, config=config)


__getattr__ = finder_in("tf.contrib.predictor", __all__)
