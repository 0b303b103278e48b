from __future__ import annotations

import functools
import types

import line
import numpy as np
import pytest
import tensorflow as tf
import tpk_estimator
from tpk_estimator import Estimator, EstimatorSpec, RunConfig

v1 = tf.compat.v1


def assert_same(values, expected):
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(values[name], value, name)


class TestTrain:
    def test_has_the_values_of_a_plain_loop(self, tmp_path):
        estimator = line.estimator(tmp_path)
        assert estimator.train(line.input_fn, steps=25) is estimator
        assert_same(line.values_in(estimator.latest_checkpoint()), line.trained_by_hand(25))

    def test_continues_from_the_directory_and_starts_its_input_again(self, tmp_path):
        line.estimator(tmp_path).train(line.input_fn, steps=12)
        line.estimator(tmp_path).train(line.input_fn, max_steps=20)
        assert_same(line.values_in(str(tmp_path / "model.ckpt-20")), line.trained_by_hand(12, 8))

    def test_writes_the_files_of_an_estimator(self, tmp_path):
        line.estimator(tmp_path).train(line.input_fn, steps=25)
        visible = {path.name for path in tmp_path.iterdir() if not path.name.startswith((".", "events"))}
        parts = ("data-00000-of-00001", "index", "meta")
        checkpoints = {f"model.ckpt-{step}.{part}" for step in (0, 10, 20, 25) for part in parts}
        assert visible == {"checkpoint", "graph.pbtxt", *checkpoints}

    def test_writes_the_loss_every_few_steps(self, tmp_path):
        line.estimator(tmp_path).train(line.input_fn, steps=11)
        assert [step for step, tag, _ in line.events_in(tmp_path) if tag == "loss"] == [1, 6, 11]

    def test_ends_where_the_input_ends(self, tmp_path):
        line.estimator(tmp_path).train(line.one_pass)
        assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-5")

    def test_max_steps_counts_earlier_steps(self, tmp_path):
        estimator = line.estimator(tmp_path).train(line.input_fn, max_steps=5)
        estimator.train(pytest.fail, max_steps=5)
        assert estimator.latest_checkpoint().endswith("model.ckpt-5")

    def test_a_train_op_may_count_by_two(self, tmp_path):
        def model_fn(features, labels):
            loss = tf.reduce_mean(features["x"]) * v1.get_variable("v", [])
            return EstimatorSpec("train", loss=loss, train_op=v1.train.get_global_step().assign_add(2))

        estimator = Estimator(model_fn, tmp_path).train(line.input_fn, max_steps=5)
        assert estimator.latest_checkpoint().endswith("model.ckpt-6")

    def test_keeps_the_latest_checkpoints(self, tmp_path):
        line.estimator(tmp_path, keep_checkpoint_max=2).train(line.input_fn, steps=30)
        kept = tf.train.get_checkpoint_state(tmp_path).all_model_checkpoint_paths
        assert [path.rpartition("-")[2] for path in kept] == ["20", "30"]

    def test_saves_nothing_if_so_configured(self, tmp_path):
        line.estimator(tmp_path, save_checkpoints_steps=None).train(line.input_fn, steps=3)
        assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"events"}

    @pytest.mark.parametrize(
        ("arguments", "error", "message"),
        [
            ({"steps": 1, "max_steps": 1}, ValueError, "exclude each other"),
            ({"steps": 0}, ValueError, "steps must be positive, but is 0"),
            ({"max_steps": -1}, ValueError, "max_steps must be positive"),
            ({"hooks": [print]}, TypeError, "hooks must contain SessionRunHook"),
            ({"saving_listeners": [print]}, TypeError, "must contain CheckpointSaverListener"),
        ],
    )
    def test_arguments_are_checked(self, tmp_path, arguments, error, message):
        with pytest.raises(error, match=message):
            line.estimator(tmp_path).train(line.input_fn, **arguments)

    def test_listeners_need_checkpoints(self, tmp_path):
        estimator = line.estimator(tmp_path, save_checkpoints_steps=None)
        with pytest.raises(ValueError, match="nothing saves checkpoints"):
            estimator.train(line.input_fn, steps=1, saving_listeners=[v1.train.CheckpointSaverListener()])


class TestEvaluate:
    def test_returns_means_over_the_data(self, tmp_path):
        estimator = line.estimator(tmp_path).train(line.input_fn, steps=5)
        values = line.trained_by_hand(5)
        error = line.X @ values["w"] + values["b"] - line.Y
        results = estimator.evaluate(line.one_pass)
        assert list(results) == ["loss", "mae", "global_step"]
        expected = {"loss": (error**2).mean(), "mae": np.abs(error).mean(), "global_step": 5}
        assert results == pytest.approx(expected, rel=1e-5)

    def test_takes_some_steps_of_an_older_checkpoint(self, tmp_path):
        estimator = line.estimator(tmp_path).train(line.input_fn, steps=20)
        results = estimator.evaluate(line.one_pass, steps=1, checkpoint_path=str(tmp_path / "model.ckpt-0"))
        first = line.Y[: line.BATCH]
        assert results["loss"] == pytest.approx(((1 - first) ** 2).mean(), rel=1e-5)
        assert results["global_step"] == 0

    def test_an_untrained_model_has_its_initial_values(self, tmp_path):
        results = line.estimator(tmp_path).evaluate(line.one_pass)
        assert results["loss"] == pytest.approx(((1 - line.Y) ** 2).mean(), rel=1e-5)

    def test_writes_an_event_file_of_its_name(self, tmp_path):
        estimator = line.estimator(tmp_path).train(line.input_fn, steps=5)
        results = estimator.evaluate(line.one_pass, name="test")
        assert estimator.eval_dir("test") == str(tmp_path / "eval_test")
        written = line.events_in(tmp_path / "eval_test")
        assert [(step, tag) for step, tag, _ in written] == [(5, "loss"), (5, "mae"), (5, "checkpoint_path")]
        assert written[1][2] == pytest.approx(results["mae"])

    @pytest.mark.parametrize("name", ["loss", "global_step"])
    def test_reserves_two_names(self, tmp_path, name):
        def model_fn(features, labels, mode):
            loss = v1.losses.mean_squared_error(labels, features["x"][:, :1])
            return EstimatorSpec(mode, loss=loss, eval_metric_ops={name: v1.metrics.mean(loss)})

        with pytest.raises(ValueError, match=f"must not contain '{name}'"):
            Estimator(model_fn, tmp_path).evaluate(line.one_pass)

    def test_a_local_init_op_of_the_model_runs_as_well(self, tmp_path):
        def model_fn(features, labels, mode):
            start = v1.get_local_variable("start", [], initializer=v1.zeros_initializer())
            loss = v1.losses.mean_squared_error(labels, 0 * labels + start)
            scaffold = v1.train.Scaffold(local_init_op=start.assign(3.0))
            return EstimatorSpec(mode, loss=loss, scaffold=scaffold)

        results = Estimator(model_fn, tmp_path).evaluate(line.one_pass)
        assert results["loss"] == pytest.approx(((3 - line.Y) ** 2).mean(), rel=1e-5)


class TestPredict:
    def test_yields_each_example(self, tmp_path):
        estimator = line.estimator(tmp_path).train(line.input_fn, steps=5)
        values = line.trained_by_hand(5)
        predictions = list(estimator.predict(line.one_pass))
        assert len(predictions) == len(line.X)
        out = np.stack([each["out"] for each in predictions])
        np.testing.assert_allclose(out, line.X @ values["w"] + values["b"], rtol=1e-5)

    def test_yields_batches_of_some_keys(self, tmp_path):
        batches = list(line.estimator(tmp_path).predict(line.one_pass, ["twice"], yield_single_examples=False))
        assert [each["twice"].shape for each in batches] == [(8, 1)] * 5
        assert batches[0].keys() == {"twice"}

    def test_an_unknown_key_is_an_error(self, tmp_path):
        with pytest.raises(ValueError, match=r"predict_keys=\['class'\]: the predictions are 'out', 'twice'"):
            next(line.estimator(tmp_path).predict(line.one_pass, ["class"]))

    def test_different_numbers_of_examples_are_an_error(self, tmp_path):
        def model_fn(features, mode):
            return EstimatorSpec(mode, predictions={"x": features["x"], "mean": tf.zeros([1])})

        with pytest.raises(ValueError, match=r"different numbers of examples: \{'x': 8, 'mean': 1\}"):
            next(Estimator(model_fn, tmp_path).predict(line.one_pass))

    def test_an_input_without_an_end_is_logged(self, tmp_path, caplog):
        predictions = line.estimator(tmp_path).predict(lambda: {"x": tf.constant(line.X)})
        assert next(predictions)["out"] == 1
        assert "predict has none" in caplog.text


class TestModelFn:
    def test_is_called_by_its_signature(self, tmp_path):
        seen = []

        def model_fn(features, mode, params, config):
            seen.append((mode, params, config.save_summary_steps))
            return EstimatorSpec(mode, predictions=features)

        def input_fn(mode, params):
            seen.append((mode, params))
            return tf.data.Dataset.from_tensors(tf.constant([1.0]))

        config = RunConfig(save_summary_steps=7)
        assert list(Estimator(model_fn, tmp_path, config, {"size": 2}).predict(input_fn)) == [1.0]
        assert seen == [("infer", {"size": 2}), ("infer", {"size": 2}, 7)]

    def test_gets_copies_of_params_of_any_type(self, tmp_path):
        def model_fn(features, mode, params):
            params.size += 1
            return EstimatorSpec(mode, predictions=features * params.size)

        estimator = Estimator(model_fn, tmp_path, params=types.SimpleNamespace(size=2.0))
        for _ in range(2):
            assert list(estimator.predict(lambda: tf.data.Dataset.from_tensors(tf.constant([1.0])))) == [3.0]
        assert estimator.params == types.SimpleNamespace(size=2.0)

    def test_may_be_a_partial_function(self, tmp_path):
        def model_fn(features, labels, mode, factor):
            return EstimatorSpec(mode, predictions=features["x"] * factor)

        estimator = Estimator(functools.partial(model_fn, factor=3), tmp_path)
        np.testing.assert_array_equal(next(estimator.predict(line.one_pass)), 3 * line.X[0])

    @pytest.mark.parametrize(
        ("model_fn", "params", "message"),
        [
            (lambda labels: None, None, "must take features"),
            (lambda features, size: None, None, "but it takes features, size"),
            (lambda features: None, {"size": 1}, "has no argument params"),
        ],
    )
    def test_signatures_are_checked(self, tmp_path, model_fn, params, message):
        with pytest.raises(ValueError, match=message):
            Estimator(model_fn, tmp_path, params=params)

    def test_returns_a_spec(self, tmp_path):
        def forgetful(features, labels):
            pass

        with pytest.raises(ValueError, match="model_fn 'forgetful' must return an EstimatorSpec, but returned None"):
            Estimator(forgetful, tmp_path).train(line.input_fn)

    def test_labels_need_an_argument(self, tmp_path):
        def blind(features):
            pass

        with pytest.raises(ValueError, match="returns labels, but model_fn 'blind' has no argument labels"):
            Estimator(blind, tmp_path).train(line.input_fn)

    def test_three_inputs_are_an_error(self, tmp_path):
        with pytest.raises(ValueError, match="input_fn returned 3 values"):
            line.estimator(tmp_path).train(lambda: (1, 2, 3))


class TestDirectory:
    def test_is_given_once(self, tmp_path):
        with pytest.raises(ValueError, match="give it once"):
            Estimator(line.model_fn, tmp_path / "a", RunConfig(model_dir=tmp_path / "b"))
        assert Estimator(line.model_fn, config=RunConfig(tmp_path)).model_dir == str(tmp_path)

    def test_is_temporary_by_default(self, caplog):
        assert Estimator(line.model_fn).model_dir in caplog.text

    def test_variables_are_read_from_the_latest_checkpoint(self, tmp_path):
        estimator = line.estimator(tmp_path)
        with pytest.raises(ValueError, match="no checkpoint in"):
            estimator.get_variable_names()
        estimator.train(line.input_fn, steps=3)
        assert estimator.get_variable_names() == ["b", "b/Momentum", "global_step", "w", "w/Momentum"]
        assert estimator.get_variable_value("global_step") == 3

    def test_params_and_config_are_copies(self, tmp_path):
        estimator = line.estimator(tmp_path)
        estimator.params["rate"] = 3
        estimator.config.model_dir = "elsewhere"
        assert (estimator.params["rate"], estimator.model_dir) == (0.1, str(tmp_path))


class TestWarmStart:
    def test_takes_trainable_variables_from_a_directory(self, tmp_path):
        line.estimator(tmp_path / "first").train(line.input_fn, steps=10)
        warm = Estimator(line.model_fn, tmp_path / "second", params={"rate": 0.1}, warm_start_from=tmp_path / "first")
        warm.train(line.input_fn, steps=1)
        values, before = (line.values_in(str(path)) for path in (tmp_path / "second/model.ckpt-0", tmp_path / "first"))
        np.testing.assert_array_equal(values["w"], before["w"])
        assert values["global_step"] == 0
        assert not values["w/Momentum"].any()

    def test_takes_the_variables_that_are_named(self, tmp_path):
        line.estimator(tmp_path / "first").train(line.input_fn, steps=10)
        settings = tpk_estimator.WarmStartSettings(str(tmp_path / "first"), "b", var_name_to_prev_var_name={"b": "b"})
        warm = Estimator(line.model_fn, tmp_path / "second", params={"rate": 0.1}, warm_start_from=settings)
        error = 0 * line.X[:, :1] + line.values_in(str(tmp_path / "first"))["b"] - line.Y
        assert warm.evaluate(line.one_pass)["loss"] == pytest.approx((error**2).mean(), rel=1e-5)

    def test_needs_a_path(self, tmp_path):
        with pytest.raises(ValueError, match="must be a path or WarmStartSettings, but got 3"):
            Estimator(line.model_fn, tmp_path, params={}, warm_start_from=3)
