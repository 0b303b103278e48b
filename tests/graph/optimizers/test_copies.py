from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tpk import AccumGradOptimizer, DynamicLossScaleOptimizer, GlobalNormClip, apply_grad_processors
from tpk.graph.optimizers.copies import copies_of_optimizers

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def test_a_copy_has_slots_of_its_own_and_the_same_hyperparameters():
    rate = v1.get_variable("rate", initializer=0.1)
    adam = v1.train.AdamOptimizer(rate)
    (copy,) = copies_of_optimizers([adam])
    variables = [v1.get_variable(name, initializer=1.0) for name in ("a", "b")]
    ops = [
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        for optimizer, variable in zip((adam, copy), variables, strict=True)
    ]
    assert copy.get_slot(variables[0], "m") is None
    assert adam.get_slot(variables[1], "m") is None
    powers = [optimizer._get_beta_accumulators()[0] for optimizer in (adam, copy)]
    assert powers[0] is not powers[1]
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        sess.run(ops)
        # Each has taken one step, not two.
        np.testing.assert_allclose(sess.run(powers), [0.9**2] * 2, rtol=1e-6)
        np.testing.assert_array_equal(*sess.run(variables))


def test_what_is_wrapped_is_copied_too():
    adam = v1.train.AdamOptimizer(0.1)
    wrapped = AccumGradOptimizer(apply_grad_processors(adam, [GlobalNormClip(1.0)]), 2)
    (copy,) = copies_of_optimizers([wrapped])
    innermost = copy._opt._opt
    assert type(copy) is AccumGradOptimizer
    assert isinstance(innermost, v1.train.AdamOptimizer)
    assert innermost is not adam


def test_one_optimizer_of_two_objectives_is_one_in_the_copies():
    adam = v1.train.AdamOptimizer(0.1)
    first, second, wrapped = copies_of_optimizers([adam, adam, apply_grad_processors(adam, [GlobalNormClip(1.0)])])
    assert first is second is wrapped._opt
    assert first is not adam


def test_the_first_one_alone_updates_what_all_share():
    optimizer = DynamicLossScaleOptimizer(v1.train.GradientDescentOptimizer(1.0), growth_interval=1)
    (copy,) = copies_of_optimizers([optimizer])
    assert copy.loss_scale is optimizer.loss_scale
    variables = [v1.get_variable(name, initializer=1.0) for name in ("a", "b")]
    ops = [
        each.apply_gradients([(tf.constant(1.0), variable)])
        for each, variable in zip((optimizer, copy), variables, strict=True)
    ]
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        sess.run(ops)
        assert sess.run(optimizer.loss_scale) == 2.0**16, "doubled once"


def test_an_optimizer_with_collections_of_its_own_shares_none():
    class Counting(v1.train.GradientDescentOptimizer):
        def __init__(self):
            super().__init__(0.1)
            self.seen = []

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            pairs = list(grads_and_vars)
            self.seen.extend(variable.name for _, variable in pairs)
            return super().apply_gradients(pairs, global_step, name)

    first = Counting()
    (second,) = copies_of_optimizers([first])
    second.apply_gradients([(tf.constant(1.0), v1.get_variable("w", initializer=1.0))])
    assert (first.seen, second.seen) == ([], ["w:0"])
