from __future__ import annotations

import line
import numpy as np
import pytest
import tensorflow as tf
from tpk_estimator import EstimatorSpec, tpu

v1 = tf.compat.v1


def input_fn(params):
    return tf.data.Dataset.from_tensor_slices(({"x": line.X}, line.Y)).batch(params["batch_size"])


def model_fn(features, labels, mode, params):
    w = v1.get_variable("w", [2, 1], initializer=v1.zeros_initializer())
    out = features["x"] @ w
    if mode == "infer":
        return tpu.TPUEstimatorSpec(mode, predictions={"out": out})
    loss = v1.losses.mean_squared_error(labels, out)
    optimizer = v1.train.AdamOptimizer(0.1)
    if not params["use_tpu"]:
        optimizer = tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())

    def metrics(labels, out):
        return {"mae": v1.metrics.mean_absolute_error(labels, out)}

    return tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, eval_metrics=(metrics, [labels, out]))


def estimator(directory, function=model_fn, **options):
    sizes = {"train_batch_size": 4, "eval_batch_size": 8, "predict_batch_size": 5}
    config = tpu.RunConfig(save_checkpoints_steps=5, log_step_count_steps=10)
    return tpu.TPUEstimator(function, str(directory), config, **{"use_tpu": False, **sizes, **options})


def test_each_mode_has_its_batch_size(tmp_path):
    seen = []

    def recording(features, labels, mode, params):
        seen.append((mode, params["batch_size"]))
        return model_fn(features, labels, mode, params)

    trained = estimator(tmp_path, recording).train(input_fn, steps=3)
    trained.evaluate(input_fn)
    batch = next(trained.predict(input_fn, yield_single_examples=False))
    assert seen == [("train", 4), ("eval", 8), ("infer", 5)]
    assert len(batch["out"]) == 5


def test_the_batch_size_is_added_to_hparams(tmp_path):
    hparams = pytest.importorskip("tpk_tensorflow1.contrib.training").HParams(rate=0.5, use_tpu=True)
    seen = []

    def recording(features, labels, mode, params):
        seen.append((params.rate, params.use_tpu, params.batch_size))
        return model_fn(features, labels, mode, params.values())

    def batches(params):
        return input_fn(params.values())

    with pytest.raises(ValueError, match="must not contain 'batch_size'"):
        estimator(tmp_path, recording, params=type(hparams)(batch_size=3))
    trained = estimator(tmp_path, recording, params=hparams).train(batches, steps=1)
    trained.evaluate(batches)
    assert seen == [(0.5, False, 4), (0.5, False, 8)]
    assert trained.params.values() == {"rate": 0.5, "use_tpu": True}


def test_trains_and_evaluates_as_an_estimator_does(tmp_path):
    results = estimator(tmp_path / "tpu").train(input_fn).evaluate(input_fn)

    def plain(features, labels, mode):
        return model_fn(features, labels, mode, {"use_tpu": False}).as_estimator_spec()

    expected = line.tpk_estimator.Estimator(plain, tmp_path / "plain")
    expected.train(lambda: input_fn({"batch_size": 4}))
    expected = expected.evaluate(lambda: input_fn({"batch_size": 8}))
    assert results == expected
    assert results["global_step"] == 10
    assert results["mae"] < np.abs(line.Y).mean()


def test_rates_of_steps_and_examples_are_written(tmp_path):
    estimator(tmp_path).train(input_fn)
    rates = {(step, tag): value for step, tag, value in line.events_in(tmp_path) if tag.endswith("/sec")}
    assert list(rates) == [(6, "global_step/sec"), (6, "examples/sec")]
    assert rates[6, "examples/sec"] == pytest.approx(4 * rates[6, "global_step/sec"])


def test_a_scaffold_fn_and_a_host_call_are_called(tmp_path):
    def with_calls(features, labels, mode, params):
        counter = v1.get_variable("counter", [], initializer=v1.zeros_initializer(), trainable=False)
        writer = tf.summary.create_file_writer(str(tmp_path / "host"))

        def host_call(loss, step):
            with writer.as_default(), tf.summary.record_if(True):
                tf.summary.scalar("host_loss", loss[0], step=step[0])
            return [counter.assign_add(1.0), *v1.summary.all_v2_summary_ops()]

        def scaffold():
            return v1.train.Scaffold(init_op=v1.global_variables_initializer())

        spec = model_fn(features, labels, mode, params)
        tensors = {"loss": spec.loss[None], "step": v1.train.get_global_step()[None]}
        return spec._replace(host_call=(host_call, tensors), scaffold_fn=scaffold)

    trained = estimator(tmp_path / "model", with_calls).train(input_fn, steps=4)
    assert trained.get_variable_value("counter") == 4
    events = [path for path in (tmp_path / "host").iterdir() if "tfevents" in path.name]
    tags = [
        value.tag for path in events for event in v1.train.summary_iterator(str(path)) for value in event.summary.value
    ]
    assert tags == ["host_loss"] * 4


def test_a_model_is_exported_without_a_batch_size(tmp_path):
    def receiver():
        x = v1.placeholder(tf.float32, [None, 2])
        return line.tpk_estimator.export.ServingInputReceiver({"x": x}, {"x": x})

    def careful(features, labels, mode, params):
        assert mode != "infer" or "batch_size" not in params
        return model_fn(features, labels, mode, params)

    path = estimator(tmp_path, careful).train(input_fn, steps=1).export_saved_model(tmp_path / "export", receiver)
    assert tf.saved_model.load(path.decode()).signatures["serving_default"](x=tf.constant(line.X))["out"].shape == (
        40,
        1,
    )


def test_an_estimator_spec_is_taken_too(tmp_path):
    def plain(features, labels, mode, params):
        return EstimatorSpec(mode, predictions=features["x"])

    assert len(list(estimator(tmp_path, plain).predict(input_fn))) == 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_tpu": True}, "pass use_tpu=False"),
        ({"params": {"batch_size": 3}}, "must not contain 'batch_size'"),
        ({"config": None}, r"must be a tpk_estimator\.tpu\.RunConfig"),
        ({"model_fn": lambda features: None}, "needs an argument params"),
    ],
)
def test_arguments_are_checked(tmp_path, options, message):
    given = {"model_fn": model_fn, "model_dir": tmp_path, "config": tpu.RunConfig(), "use_tpu": False, **options}
    with pytest.raises(ValueError, match=message):
        tpu.TPUEstimator(**given)


def test_an_input_fn_takes_params(tmp_path):
    with pytest.raises(ValueError, match="an input_fn for a TPUEstimator needs an argument params"):
        estimator(tmp_path).train(line.input_fn, steps=1)


def test_a_call_is_a_function_with_tensors():
    with pytest.raises(TypeError, match="eval_metrics must be a pair"):
        tpu.TPUEstimatorSpec("eval", eval_metrics={"mae": 1})


def test_the_config_has_a_server_or_a_cluster():
    assert tpu.RunConfig(master="grpc://a:1").master == "grpc://a:1"
    assert (
        tpu.RunConfig(tpu.TPUConfig(iterations_per_loop=7)).replace(model_dir="b").tpu_config.iterations_per_loop == 7
    )
    with pytest.raises(ValueError, match="exclude each other"):
        tpu.RunConfig(master="a", cluster=object())
