"""Predictions of a model, example by example or batch by batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf


def predict_batches(predictions: Any, creator: Any, hooks: Sequence[Any]) -> Iterator[Any]:
    """Yield the values of `predictions` for each batch, until a hook or the end of the input stops it.

    Args:
        predictions: a tensor, or a dict of tensors.
        creator: creates the session.
        hooks: session hooks.
    """
    with tf.compat.v1.train.MonitoredSession(creator, hooks) as session:
        while not session.should_stop():
            yield session.run(predictions)


def select(predictions: Any, keys: Collection[str] | None) -> Any:
    """Return the predictions with some of the keys; all of them if `keys` is empty.

    Raises:
        ValueError: if the predictions are not a dict, or have none of the keys.
    """
    if not keys:
        return predictions
    if not isinstance(predictions, Mapping):
        raise ValueError(f"predict_keys={keys!r} need predictions in a dict, but the model_fn returns one tensor.")
    selected = {key: value for key, value in predictions.items() if key in keys}
    if not selected:
        raise ValueError(f"predict_keys={keys!r}: the predictions are {', '.join(map(repr, predictions))}.")
    return selected


def examples_of(batch: Any) -> Iterator[Any]:
    """Yield the predictions of each example in a batch.

    Raises:
        ValueError: if the values in the dict are for different numbers of examples.
    """
    if not isinstance(batch, Mapping):
        yield from batch
        return
    sizes = {key: value.shape[0] for key, value in batch.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"the predictions are for different numbers of examples: {sizes}. Return tensors with the same first "
            "dimension, or call predict with yield_single_examples=False."
        )
    for index in range(max(sizes.values(), default=0)):
        yield {key: value[index] for key, value in batch.items()}
