from __future__ import annotations

import functools
import logging
import re

import numpy as np
import pytest
import tensorflow as tf

from tpk.errors import ConfigError
from tpk.graph.optimizers.accumulation import AccumGradOptimizer
from tpk.graph.optimizers.gradient_processors import (
    CheckGradient,
    FilterNoneGrad,
    GlobalNormClip,
    GradientProcessor,
    MapGradient,
    PrintGradient,
    ScaleGradient,
    SummaryGradient,
    apply_grad_processors,
)
from tpk.graph.reports.summary_ops import without_summaries

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def variables(*names):
    """Variables of two rows and three columns, all zero."""
    return [v1.get_variable(name, [2, 3], initializer=v1.zeros_initializer()) for name in names]


def dense(*rows):
    return tf.constant(rows, tf.float32)


def sparse(values, indices):
    return tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(indices), tf.constant([2, 3]))


def evaluate(value, feed_dict=None):
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        return sess.run(value, feed_dict)


def values_of(processed):
    """The gradients' values by the name of the variable; what has no gradient is left out."""
    return evaluate({var.op.name: grad for grad, var in processed if grad is not None})


GRAD = [[1.0, -2.0, 3.0], [0.0, 4.0, 5.0]]


def test_those_without_a_gradient_are_left_out_and_named(caplog):
    a, b, c = variables("a", "b", "c")
    grad = dense(*GRAD)
    assert FilterNoneGrad().process([(None, a), (grad, b), (None, c)]) == [(grad, b)]
    assert "no gradient of 2 variables, so not trained: a, c" in caplog.text
    caplog.clear()
    assert FilterNoneGrad(verbose=False).process([(None, a)]) == []
    assert not caplog.text


@pytest.mark.parametrize("norm", [0.5, 1e3])
def test_clipping_is_tensorflows_own(norm):
    a, b, c = variables("a", "b", "c")
    grads = [dense(*GRAD), sparse([[3.0, 4.0, 0.0]], [1]), None]
    ours = GlobalNormClip(norm).process(zip(grads, [a, b, c], strict=True))
    theirs, _ = tf.clip_by_global_norm(grads, norm)
    assert [var for _, var in ours] == [a, b, c]
    assert ours[2][0] is None
    for (our, _), their in zip(ours[:2], theirs[:2], strict=True):
        for one, other in zip(*evaluate([tf.nest.flatten(our, True), tf.nest.flatten(their, True)]), strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_norm_is_that_of_all_gradients_together():
    pairs = [(dense(*GRAD), var) for var in variables("a", "b")]
    clipped = np.stack(list(values_of(GlobalNormClip(1.0).process(pairs)).values()))
    assert np.linalg.norm(clipped) == pytest.approx(1.0, rel=1e-6)


def test_the_norm_of_a_sparse_gradient_is_that_of_the_dense_one():
    (a,) = variables("a")
    ((grad, _),) = GlobalNormClip(1.0).process([(sparse([[3.0, 0.0, 0.0], [1.0, 0.0, 0.0]], [1, 1]), a)])
    np.testing.assert_allclose(evaluate(tf.math.unsorted_segment_sum(grad.values, grad.indices, 2))[:, 0], [0.0, 1.0])


@pytest.mark.parametrize("size", [1e-5, 1.0, 3e4], ids=["small", "medium", "large"])
@pytest.mark.parametrize("dtypes", [(tf.float16,), (tf.bfloat16,), (tf.float16, tf.float32), (tf.float16, tf.float64)])
def test_gradients_of_few_bits_are_clipped_as_those_of_many(dtypes, size):
    def clipped(*dtypes):
        pairs = []
        for index, dtype in enumerate(dtypes):
            with v1.variable_scope(None, "of"):
                a, b = (v1.get_variable(name, [2, 3], dtype) for name in ("dense", "sparse"))
            values = tf.cast(size * np.array([[1.0, -0.5, 0.25], [0.75, 0.5, 1.0]]) / (index + 1), dtype)
            pairs += [(values, a), (tf.IndexedSlices(values, tf.constant([1, 1]), tf.constant([2, 3])), b)]
        processed = GlobalNormClip(0.5 * size).process(pairs)
        assert [(getattr(grad, "values", grad).dtype, var) for grad, var in processed] == [
            (var.dtype.base_dtype, var) for _, var in pairs
        ]
        return evaluate([tf.cast(getattr(grad, "values", grad), tf.float64) for grad, _ in processed])

    for one, other in zip(clipped(*dtypes), clipped(*[tf.float64] * len(dtypes)), strict=True):
        assert np.abs(other).max() > 0.05 * size
        np.testing.assert_allclose(one, other, rtol=0.02, atol=1e-7)


def test_clipping_without_any_gradient_does_nothing():
    pairs = [(None, var) for var in variables("a")]
    assert GlobalNormClip(1.0).process(pairs) == pairs


@pytest.mark.parametrize("norm", [0, -1.0, float("nan")])
def test_a_norm_that_is_not_positive_is_an_error(norm):
    with pytest.raises(ConfigError, match="GlobalNormClip: global_norm must be positive"):
        GlobalNormClip(norm)


class Times:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, grad):
        return grad * self.factor

    def plus_variable(self, grad, var):
        return grad * self.factor + var


FUNCTIONS = {
    "gradient": (lambda grad: grad * 2, 2),
    "gradient and variable": (lambda grad, var: grad * 2 + var, 2),
    "with a default": (tf.negative, -1),
    "partial": (functools.partial(tf.multiply, 3.0), 3),
    "callable": (Times(4), 4),
    "method": (Times(5).plus_variable, 5),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_function_is_applied_to_gradients_whose_variable_matches(kind):
    func, factor = FUNCTIONS[kind]
    a, b = variables("conv/kernel", "conv/kernel2")
    values = values_of(MapGradient(func, "conv/kernel|none").process([(dense(*GRAD), a), (dense(*GRAD), b)]))
    np.testing.assert_array_equal(values["conv/kernel"], factor * np.array(GRAD))
    np.testing.assert_array_equal(values["conv/kernel2"], GRAD)


def test_a_function_that_returns_none_freezes_the_variable():
    a, b = variables("a", "b")
    processed = MapGradient(lambda grad: None, "a").process([(dense(*GRAD), a), (dense(*GRAD), b)])
    assert [var for _, var in processed] == [b]


def test_a_function_sees_no_missing_gradients():
    pairs = [(None, var) for var in variables("a")]
    assert MapGradient(tf.negative).process(pairs) == pairs


def test_every_replicate_is_treated_alike():
    main, other = variables("conv/kernel", "tower1/conv/kernel")
    values = values_of(MapGradient(tf.negative, "conv/.*").process([(dense(*GRAD), main), (dense(*GRAD), other)]))
    np.testing.assert_array_equal(values["conv/kernel"], values["tower1/conv/kernel"])


@pytest.mark.parametrize(
    "processor", [MapGradient(tf.negative, "c"), ScaleGradient(("c", 2)), SummaryGradient("c"), CheckGradient("c")]
)
def test_an_expression_that_matches_nothing_is_a_warning(processor, caplog):
    pairs = [(dense(*GRAD), var) for var in variables("a", "b")]
    assert processor.process(pairs) == pairs
    assert f"{type(processor).__name__}: 'c' does not match the whole name of any variable (a, b)" in caplog.text


@pytest.mark.parametrize(
    "make",
    [
        lambda: MapGradient(tf.negative, "conv["),
        lambda: SummaryGradient("("),
        lambda: ScaleGradient(("*", 2.0)),
        lambda: MapGradient(tf.negative, None),
    ],
)
def test_an_invalid_expression_is_an_error(make):
    with pytest.raises(ConfigError, match="is not a regular expression"):
        make()


@pytest.mark.parametrize("func", [lambda: 1, lambda a, b, c: 1, 3, dict])
def test_a_function_that_cannot_be_called_is_an_error(func):
    with pytest.raises(ConfigError, match=r"MapGradient calls func\(grad\) or func\(grad, var\)"):
        MapGradient(func)


@pytest.mark.parametrize("func", [tf.reduce_sum, lambda grad: 3.0, lambda grad: tf.cast(grad, tf.float64)])
def test_a_result_that_does_not_fit_the_variable_is_an_error(func):
    (a,) = variables("a")
    with pytest.raises(
        ConfigError, match=r"MapGradient returned .* for the gradient of 'a'; expected a tensor of shape"
    ):
        MapGradient(lambda grad: func(grad)).process([(dense(*GRAD), a)])


def test_each_gradient_is_scaled_by_the_first_multiplier_that_matches(caplog):
    caplog.set_level(logging.INFO)
    pairs = [(dense(*GRAD), var) for var in variables("layer0/bias", "layer1/bias", "layer1/kernel", "frozen")]
    processed = ScaleGradient([("layer0/.*", 0.5), (".*/bias", 2.0), ("frozen", 0)]).process(pairs)
    values = values_of(processed)
    assert {name: float(value[0, 0]) for name, value in values.items()} == {
        "layer0/bias": 0.5,
        "layer1/bias": 2.0,
        "layer1/kernel": 1.0,
    }
    assert "the gradient of layer0/bias is multiplied by 0.5" in caplog.text
    assert "the gradient of frozen is multiplied by 0" in caplog.text
    assert "layer1/kernel" not in caplog.text
    caplog.clear()
    ScaleGradient((".*", 2), verbose=False).process(pairs)
    assert not caplog.text


def test_a_sparse_gradient_is_scaled_and_stays_sparse():
    (a,) = variables("a")
    ((grad, _),) = ScaleGradient((".*", 3.0)).process([(sparse([[1.0, 2.0, 3.0]], [1]), a)])
    assert isinstance(grad, tf.IndexedSlices)
    assert evaluate(grad).values.tolist() == [[3.0, 6.0, 9.0]]


@pytest.mark.parametrize("multipliers", [[("a", "b")], [(1, 2.0)], ["ab"], [("a", 1.0), ("b", None)], "ab", 3])
def test_multipliers_that_are_no_pairs_are_an_error(multipliers):
    with pytest.raises(ConfigError, match="pairs of a regular expression and a number"):
        ScaleGradient(multipliers)


@pytest.mark.parametrize("make", [lambda x: x, lambda x: tf.IndexedSlices(x, tf.range(2), tf.constant([2, 3]))])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_ends_the_step_and_names_the_variable(make, bad):
    (a,) = variables("conv/kernel")
    x = v1.placeholder(tf.float32, [2, 3])
    ((grad, _),) = CheckGradient().process([(make(x), a)])
    good = np.float32(GRAD)
    np.testing.assert_array_equal(evaluate(tf.nest.flatten(grad, True)[0], {x: good}), good)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the gradient of conv/kernel is not finite"):
        evaluate(grad, {x: np.where(good == 4, np.float32(bad), good)})


def shown():
    merged = v1.summary.merge_all()
    summary = v1.Summary.FromString(evaluate(merged)) if merged is not None else v1.Summary()
    return {value.tag: value for value in summary.value}


def test_gradients_are_summarized_and_left_as_they_are():
    a, b = variables("conv/kernel", "bias")
    pairs = [(dense(*GRAD), a), (dense(*GRAD), b)]
    with tf.name_scope("apply_gradients"):
        assert SummaryGradient("conv/.*").process(pairs) == pairs
    summaries = shown()
    assert set(summaries) == {f"SummaryGradient/conv/kernel-grad-{kind}" for kind in ("histogram", "rms")}
    rms = summaries["SummaryGradient/conv/kernel-grad-rms"].simple_value
    assert rms == pytest.approx(np.sqrt(np.mean(np.square(GRAD))), rel=1e-6)
    assert summaries["SummaryGradient/conv/kernel-grad-histogram"].histo.num == 6


def test_of_a_sparse_gradient_the_rows_are_summarized_that_it_has():
    (a,) = variables("a")
    SummaryGradient().process([(sparse([[3.0, 3.0, 3.0]], [1]), a)])
    assert shown()["SummaryGradient/a-grad-rms"].simple_value == pytest.approx(3.0)


def test_summaries_show_the_main_tower_once():
    main, other = variables("w", "tower1/w")
    processor = SummaryGradient()
    processor.process([(dense(*GRAD), main)])
    processor.process([(dense(*GRAD), main)])
    processor.process([(dense(*GRAD), other)])
    with without_summaries():
        SummaryGradient().process([(dense(*GRAD), main)])
    assert len(v1.get_collection(v1.GraphKeys.SUMMARIES)) == 2


def test_summaries_may_go_to_a_collection_of_their_own():
    (a,) = variables("a")
    SummaryGradient(collections=["mine"]).process([(dense(*GRAD), a)])
    assert len(v1.get_collection("mine")) == 2
    assert not v1.get_collection(v1.GraphKeys.SUMMARIES)


def test_summaries_inside_an_accumulation_are_an_error_that_says_where_they_belong(control_flow):
    (a,) = variables("a")
    inside = apply_grad_processors(v1.train.GradientDescentOptimizer(0.1), [SummaryGradient()])
    with pytest.raises(ConfigError, match="Put it around"):
        AccumGradOptimizer(inside, 2).apply_gradients([(dense(*GRAD), a)])


def test_a_processor_of_ones_own():
    class _Halve(GradientProcessor):
        def _process(self, grads_and_vars):
            return ((grad / 2, var) for grad, var in grads_and_vars)

    (a,) = variables("a")
    np.testing.assert_array_equal(values_of(_Halve().process([(dense(*GRAD), a)]))["a"], np.array(GRAD) / 2)


def printed(capfd):
    return [line for line in capfd.readouterr().err.splitlines() if line.startswith("gradient of")]


def test_gradients_are_printed_in_each_step_and_not_changed(capfd):
    a, b, c = variables("a", "b", "c")
    grads = [dense(*GRAD), sparse([[3.0, 4.0, 0.0]], [1]), dense(*GRAD)]
    ours = PrintGradient("a|b").process(zip(grads, [a, b, c], strict=True))
    assert isinstance(ours[1][0], tf.IndexedSlices)
    assert ours[2][0] is grads[2]
    with v1.Session() as sess:
        for _ in range(2):
            for one, other in zip(
                *sess.run([tf.nest.flatten([g for g, _ in ours], True), tf.nest.flatten(grads, True)]), strict=True
            ):
                np.testing.assert_array_equal(one, other)
    lines = [re.sub(r"(\.\d{4})\d+", r"\1", line) for line in printed(capfd)]
    assert sorted(lines) == sorted(
        2
        * [
            "gradient of a: shape [2 3] mean 1.8333 rms 3.0276 max 5",
            "gradient of b: shape [1 3] mean 2.3333 rms 2.8867 max 4",
        ]
    )


def test_gradients_of_other_towers_are_not_printed(capfd):
    (a,) = variables("a")
    (other,) = variables("tower1/a")
    grad = dense(*GRAD)
    processor = PrintGradient()
    ((ours, _), (theirs, _)) = processor.process([(grad, a), (grad, other)])
    ((again, _),) = processor.process([(grad, a)])
    assert theirs is grad
    assert again is grad
    evaluate([ours, theirs, again])
    assert len(printed(capfd)) == 1


def test_an_invalid_expression_for_printed_gradients_is_an_error():
    with pytest.raises(ConfigError, match="PrintGradient: '\\(' is not a regular expression"):
        PrintGradient("(")
