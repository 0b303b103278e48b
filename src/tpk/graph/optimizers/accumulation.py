"""Gradients of several steps, applied as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from tpk.argument_checks import check_at_least
from tpk.graph.gradients import Gradients
from tpk.graph.optimizers.proxy_optimizer import (
    ProxyOptimizer,
    check_no_reference,
    colocate_with,
    create_slot,
    sum_dtype,
)
from tpk.graph.scopes import freeze_collection
from tpk.graph.variables import variable_name
from tpk.tf_internals import create_slots

_SLOT = "accum"
"""The slot that is the sum of the gradients of a variable so far."""

InTower = Callable[[int], AbstractContextManager[Any]]
Reduce = Callable[[list[list[Any]]], list[list[Any]]]


class AccumGradOptimizer(ProxyOptimizer):
    """Accumulates gradients and applies their mean in every `niter`-th step.

    If the cost is a mean over the batch, this is equivalent to a batch that is `niter` times as large, in the memory of
    one batch. The wrapped optimizer runs only in every `niter`-th step, so its counters and averages refer to updates.
    Learning-rate schedules, which read the global step, still count steps.

    The accumulated gradients and their number are variables that are saved in checkpoints, so training resumes in the
    middle of an accumulation. Sparse gradients stay sparse: rows without a gradient in any of the steps do not change.

    With the strategies ``replicated``, ``collective`` and ``horovod``, each tower accumulates its own gradients, and
    towers and processes all-reduce the means once per update instead of in every step. This requires that
    `AccumGradOptimizer` is the outermost optimizer; gradient processors may be inside. A wrapper around it must see the
    gradients of all towers in each step, so gradients are then all-reduced in each step and accumulated identically.
    This applies also to the loss scale of ``precision="float16"``. Checkpoints contain the accumulated gradients of all
    towers of the process, and of other processes if taken in the middle of an accumulation. If the resumed training has
    a different number of towers, all continue with the accumulated gradients of the first tower.

    Processors for the mean, such as `GlobalNormClip`, belong inside; processors for the gradient of each step, such as
    `SummaryGradient`, belong around it.

    Args:
        opt: the optimizer that updates.
        niter: the number of steps to accumulate. With 1, the result is the same as with `opt` alone.

    Raises:
        ConfigError: if `opt` is not a `tf.compat.v1.train.Optimizer`, or `niter` is not a positive integer.

    Attributes:
        niter: the number of steps to accumulate.
        counters: the variables that count the accumulated steps, one for each call of `apply_gradients`.
        accumulated: the variables that contain the accumulated gradients, without `counters`.

    Example:
        ```python
        def optimizer(self):
            optimizer = tf.compat.v1.train.AdamOptimizer(1e-3)
            return AccumGradOptimizer(apply_grad_processors(optimizer, [GlobalNormClip(1.0)]), niter=4)
        ```
    """

    def __init__(self, opt: Any, niter: int) -> None:
        super().__init__(opt, "AccumGrad")
        check_at_least(self, 1, niter=niter)
        self.niter = int(niter)
        self.counters: list[Any] = []
        self.accumulated: list[Any] = []

    def _build_update(self, grads_and_vars: list[tuple[Any, Any]]) -> Any:
        if self.niter == 1:
            return super()._build_update(grads_and_vars)
        # Each call accumulates by itself: several towers may apply gradients to the same variables asynchronously.
        return _build_of_towers([self], [grads_and_vars], lambda index: nullcontext(), lambda means: means)

    def _create_accumulators(self, grads_and_vars: Gradients) -> list[_Accumulator]:
        check_no_reference(type(self).__name__, grads_and_vars)
        created = []
        for grad, var in grads_and_vars:
            kind = _SparseAccumulator if isinstance(grad, tf.IndexedSlices) else _Accumulator
            accumulator = kind(var, self.get_name())
            created.append(accumulator)
            self.accumulated += accumulator.variables
            self._own_variables += accumulator.variables
            self._own_slots.setdefault(_SLOT, {}).setdefault(var.ref(), accumulator.sum)
        return created

    def _create_counter(self, grads_and_vars: Gradients) -> Any:
        # The same variable in whatever order the variables are trained.
        first = min((var for _, var in grads_and_vars), key=variable_name)
        counter = create_slot(first, f"{self.get_name()}/counter", lambda: tf.zeros([], tf.int64), on_cpu=True)
        self.counters.append(counter)
        self._own_variables.append(counter)
        return counter


def is_accumulating(optimizer: Any) -> bool:
    """Whether the outermost optimizer accumulates the gradients of several steps."""
    return isinstance(optimizer, AccumGradOptimizer) and optimizer.niter > 1


def apply_in_towers(
    optimizers: Sequence[AccumGradOptimizer],
    gradients: Sequence[Gradients],
    in_tower: InTower,
    reduce: Reduce,
    name: str,
) -> Any:
    """Return an op that accumulates the gradients of each tower, and reduces and applies them when due.

    All towers share one count. All processes are at the same step, so they take the same branch, and the ops of
    `reduce` may wait for other processes.

    Args:
        optimizers: the optimizer of each tower.
        gradients: the gradients and variables of each tower.
        in_tower: takes the index of a tower and returns the context in which its ops and variables are created.
        reduce: takes the accumulated gradients of each tower, tensors or `tf.IndexedSlices`, and returns the gradients
            that each tower applies.
        name: the name of the op.
    """
    for index, (optimizer, pairs) in enumerate(zip(optimizers, gradients, strict=True)):
        with in_tower(index), tf.init_scope():
            create_slots(optimizer, [var for _, var in pairs])
    train_op_key = tf.compat.v1.GraphKeys.TRAIN_OP
    with freeze_collection([train_op_key]), tf.name_scope(name) as scope:
        train_op = tf.group(_build_of_towers(optimizers, gradients, in_tower, reduce), name=scope)
    tf.compat.v1.add_to_collection(train_op_key, train_op)
    return train_op


def _build_of_towers(
    optimizers: Sequence[AccumGradOptimizer], gradients: Sequence[Gradients], in_tower: InTower, reduce: Reduce
) -> Any:
    towers = range(len(optimizers))
    accumulators = []
    for index, optimizer, pairs in zip(towers, optimizers, gradients, strict=True):
        with in_tower(index):
            accumulators.append(optimizer._create_accumulators(pairs))
    counter = optimizers[0]._create_counter(gradients[0])
    added = []
    for index, pairs in zip(towers, gradients, strict=True):
        with in_tower(index):
            added += [each.add(grad) for each, (grad, _) in zip(accumulators[index], pairs, strict=True)]
    with tf.control_dependencies(added), colocate_with(counter):
        count = counter.assign_add(1).value()

    def apply() -> Any:
        means = []
        for index in towers:
            with in_tower(index):
                means.append([each.mean(count) for each in accumulators[index]])
        done = []
        for index, optimizer, own in zip(towers, optimizers, reduce(means), strict=True):
            with in_tower(index):
                variables = [var for _, var in gradients[index]]
                update = optimizer._opt.apply_gradients(list(zip(own, variables, strict=True)))
                with tf.control_dependencies([update]):
                    done += [each.clear() for each in accumulators[index]]
        with tf.control_dependencies(done), colocate_with(counter):
            return tf.group(counter.assign(0, read_value=False))

    # Not `==`, because training may be resumed with a smaller `niter`.
    return tf.cond(count >= optimizers[0].niter, apply, tf.no_op).op


class _Accumulator:
    """The sum of the gradients of a variable.

    Attributes:
        variables: the sum, and other state of the accumulation.
    """

    def __init__(self, var: Any, name: str) -> None:
        self.sum = create_slot(var, name, lambda: tf.zeros(var.shape, sum_dtype(var)))
        self.variables = [self.sum]
        self._dtype = var.dtype.base_dtype

    def add(self, grad: Any) -> Any:
        """Return the op that adds a gradient."""
        with colocate_with(self.sum):
            return self.sum.assign_add(tf.cast(grad, self.sum.dtype), read_value=False)

    def mean(self, count: Any) -> Any:
        """Return the mean of `count` gradients."""
        with colocate_with(self.sum):
            return self._divided(self.sum.read_value(), count)

    def clear(self) -> Any:
        """Return the op that resets the sum."""
        with colocate_with(self.sum):
            return tf.group(*(each.assign(tf.zeros_like(each), read_value=False) for each in self.variables))

    def _divided(self, values: Any, count: Any) -> Any:
        return tf.cast(values / tf.cast(count, values.dtype), self._dtype)


class _SparseAccumulator(_Accumulator):
    """Records which rows have a gradient, because optimizers treat a missing gradient differently from zero."""

    def __init__(self, var: Any, name: str) -> None:
        super().__init__(var, name)
        self._touched = create_slot(var, f"{name}/touched", lambda: tf.zeros(var.shape[:1], tf.bool))
        self.variables.append(self._touched)

    def add(self, grad: Any) -> Any:
        with colocate_with(self.sum):
            values = tf.cast(grad.values, self.sum.dtype)
            return tf.group(
                tf.raw_ops.ResourceScatterAdd(resource=self.sum.handle, indices=grad.indices, updates=values),
                tf.raw_ops.ResourceScatterUpdate(resource=self._touched.handle, indices=grad.indices, updates=True),
            )

    def mean(self, count: Any) -> Any:
        with colocate_with(self.sum):
            rows = tf.where(self._touched.read_value())[:, 0]
            values = self._divided(tf.gather(self.sum.read_value(), rows), count)
            return tf.IndexedSlices(values, rows, tf.shape(self.sum, out_type=tf.int64))
