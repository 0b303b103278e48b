from __future__ import annotations

import line
import pytest
import tensorflow as tf
from tpk_estimator import add_metrics, experimental

v1 = tf.compat.v1
EVERY_STEP = {"run_every_secs": None, "run_every_steps": 1}


@pytest.fixture
def estimator(tmp_path):
    return line.estimator(str(tmp_path))


def trained(estimator, hook, steps=6):
    """Return how many steps a training with the hook had."""
    before = estimator.get_variable_value("global_step") if estimator.latest_checkpoint() else 0
    estimator.train(line.input_fn, [hook], steps)
    return estimator.get_variable_value("global_step") - before


def events(directory, tag):
    return [
        (event.step, value.simple_value)
        for path in sorted(tf.io.gfile.glob(f"{directory}/*.tfevents.*"))
        for event in v1.train.summary_iterator(path)
        for value in event.summary.value
        if value.tag == tag
    ]


def test_a_function_is_asked_every_few_steps(estimator):
    answers = iter([False, False, True])
    hook = experimental.make_early_stopping_hook(estimator, lambda: next(answers), None, 3)
    assert trained(estimator, hook, 30) == 7
    assert estimator.get_variable_names() == ["b", "b/Momentum", "global_step", "w", "w/Momentum"]


@pytest.mark.parametrize(
    ("make", "threshold", "steps"),
    [
        (experimental.stop_if_higher_hook, 1e-9, 1),
        (experimental.stop_if_higher_hook, 1e9, 6),
        (experimental.stop_if_lower_hook, 1e9, 1),
        (experimental.stop_if_lower_hook, 1e-9, 6),
    ],
)
def test_a_metric_beyond_a_threshold(estimator, make, threshold, steps):
    estimator.evaluate(line.one_pass)
    assert trained(estimator, make(estimator, "loss", threshold, **EVERY_STEP)) == steps
    assert trained(estimator, make(estimator, "loss", threshold, min_steps=100, **EVERY_STEP)) == 6


def test_a_metric_that_does_not_get_better(estimator):
    for loss in (0.25, 0.5, 0.75):
        estimator.train(line.input_fn, steps=4)
        write_event(estimator, loss)
    assert trained(estimator, experimental.stop_if_no_decrease_hook(estimator, "loss", 8, **EVERY_STEP)) == 1
    assert trained(estimator, experimental.stop_if_no_decrease_hook(estimator, "loss", 9, **EVERY_STEP)) == 6
    assert trained(estimator, experimental.stop_if_no_increase_hook(estimator, "loss", 8, **EVERY_STEP)) == 6


def write_event(estimator, loss):
    summary = v1.Summary()
    summary.value.add(tag="loss", simple_value=loss)
    step = estimator.get_variable_value("global_step")
    # Two files of one second would have the same name.
    with tf.Graph().as_default(), v1.summary.FileWriter(estimator.eval_dir(), filename_suffix=f".{step}") as writer:
        writer.add_summary(summary, step)


def test_an_unknown_metric(estimator):
    estimator.evaluate(line.one_pass)
    hook = experimental.stop_if_higher_hook(estimator, "f1", 0.5, **EVERY_STEP)
    with pytest.raises(ValueError, match=r"no metric 'f1': it has .*mae"):
        trained(estimator, hook)


@pytest.mark.parametrize("times", [(60, 60), (None, None)])
def test_one_period_is_needed(estimator, times):
    with pytest.raises(ValueError, match="either run_every_secs or run_every_steps"):
        experimental.make_early_stopping_hook(estimator, bool, *times)


def test_evaluations_in_memory(estimator):
    hook = experimental.InMemoryEvaluatorHook(estimator, line.one_pass, every_n_iter=4, name="memory")
    estimator.train(line.input_fn, [hook], 10)
    found = events(estimator.eval_dir("memory"), "mae")
    assert [step for step, _ in found] == [0, 4, 8, 10]
    assert found[-1][1] == pytest.approx(estimator.evaluate(line.one_pass)["mae"])


@pytest.mark.parametrize(
    ("make", "error"), [(lambda estimator: 3, TypeError), (lambda estimator: estimator, ValueError)]
)
def test_wrong_evaluations_in_memory(estimator, make, error):
    with pytest.raises(error, match="must be"):
        experimental.InMemoryEvaluatorHook(make(estimator), line.one_pass, every_n_iter=0)


def test_added_metrics(estimator):
    estimator.train(line.input_fn, steps=2)

    def metric_fn(features, labels):
        return {"x/mean": v1.metrics.mean(features["x"]), "mae": v1.metrics.mean(labels)}

    found = add_metrics(estimator, metric_fn).evaluate(line.one_pass)
    assert found["x/mean"] == pytest.approx(0, abs=1e-6)
    assert found["mae"] == pytest.approx(float(line.Y.mean()))
    assert found["loss"] == pytest.approx(estimator.evaluate(line.one_pass)["loss"])
    with pytest.raises(ValueError, match="but it takes mode"):
        add_metrics(estimator, lambda mode: {})
