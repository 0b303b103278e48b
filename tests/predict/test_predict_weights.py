"""Where an offline predictor has its weights from, and what happens if they are not all there."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import CheckpointError
from tpk.predict import AveragedWeights, InitialValues, OfflinePredictor

AVERAGE = "ExponentialMovingAverage"


def predict_with(config, x):
    with OfflinePredictor(config) as predict:
        return predict(x)[0]


class TakeWeights(tpk.Callback):
    """Keeps what the variables are at the end of the training."""

    def after_train(self, trainer):
        names = ["fc/W", "fc/b", f"fc/W/{AVERAGE}", f"fc/b/{AVERAGE}"]
        variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
        self.values = trainer.sess.run({name: variables[name] for name in names if name in variables})


@pytest.mark.parametrize(
    "strategy",
    ["single", tpk.use("replicated", devices=2), tpk.use("parameter_server", devices=2), tpk.use("async", devices=2)],
    ids=["single", "replicated", "parameter_server", "async"],
)
def test_weights_that_any_strategy_saved_are_loaded_from_its_run_directory(
    tmp_path, model, config_of, by_numpy, batches, strategy, caplog
):
    taken = TakeWeights()
    trainer = tpk.SingleCostTrainer(strategy=strategy)
    source = tpk.TensorInput(lambda: [tf.random.normal([4, 3]), tf.random.normal([4, 2])])
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    trainer.train(callbacks=[tpk.ModelSaver(), taken], steps_per_epoch=3, max_epoch=2, run_dir=tmp_path / "run")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found = predict_with(config_of(session_init=tmp_path / "run"), batches[0])
    np.testing.assert_allclose(found, by_numpy(batches[0], taken.values), rtol=1e-5, atol=1e-6)
    assert not caplog.records, "the unused state of Adam needs no warning"


def test_the_newest_complete_checkpoint_of_a_run_is_taken(tmp_path, model, config_of, by_numpy, batches):
    taken = TakeWeights()
    trainer = tpk.SimpleTrainer()
    source = tpk.TensorInput(lambda: [tf.ones([4, 3]), tf.zeros([4, 2])])
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    trainer.train(callbacks=[tpk.ModelSaver(), taken], steps_per_epoch=1, max_epoch=2, run_dir=tmp_path)
    (tmp_path / "model-2.data-00000-of-00001").write_bytes(b"torn")
    first = predict_with(config_of(session_init=tmp_path / "model-1"), batches[0])
    np.testing.assert_array_equal(predict_with(config_of(session_init=tmp_path), batches[0]), first)
    assert not np.allclose(first, by_numpy(batches[0], taken.values), rtol=1e-6)


def test_a_variable_without_a_value_is_an_error_that_names_it(config_of):
    values = {"fc/W": np.zeros([3, 2]), "fc/bias": np.zeros(2)}
    with pytest.raises(CheckpointError, match=r"no value for 1 variable of the model: fc/b\. Nearest: 'fc/bias'"):
        OfflinePredictor(config_of(session_init=values))
    with pytest.raises(CheckpointError, match=r"session_init is None.*2 variables: fc/W, fc/b"):
        OfflinePredictor(config_of(session_init=None))


def test_one_of_another_shape_is_an_error_that_names_it(config_of):
    with pytest.raises(CheckpointError, match="'fc/b' has shape"):
        OfflinePredictor(config_of(session_init={"fc/W": np.zeros([3, 2]), "fc/b": np.zeros(3)}))


def test_a_path_that_is_not_there_is_an_error(config_of, tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint"):
        OfflinePredictor(config_of(session_init=tmp_path / "nowhere"))


def test_missing_values_may_be_given_or_initialized(config_of, batches):
    weights = np.full([3, 2], 2, np.float32)
    together = config_of(session_init=[{"fc/W": weights}, {"fc/b": [1, 2]}])
    np.testing.assert_allclose(predict_with(together, batches[0]), batches[0] @ weights + [1, 2], rtol=1e-6, atol=1e-6)
    initialized = config_of(session_init=[{"fc/W": weights}, InitialValues(["fc/b:0"])])
    np.testing.assert_allclose(predict_with(initialized, batches[0]), batches[0] @ weights, rtol=1e-6, atol=1e-6)
    assert predict_with(config_of(session_init=InitialValues()), batches[0]).shape == (4, 2)
    with pytest.raises(CheckpointError, match=r"no variable 'fc/B'\. Nearest: 'fc/b'"):
        OfflinePredictor(config_of(session_init=InitialValues(["fc/B"])))
    with pytest.raises(CheckpointError, match=r"e.g. \['fc/b'\]"):
        InitialValues("fc/b")


def test_a_session_init_of_ones_own_may_forget_nothing_either(config_of):
    class Half(tpk.SessionInit):
        def run(self, sess):
            tpk.DictRestore({"fc/W": np.zeros([3, 2])}).run(sess)

    with pytest.raises(CheckpointError, match="Half has no value for 1 variable of the model: fc/b"):
        OfflinePredictor(config_of(session_init=Half()))


def test_the_global_step_needs_no_value(config_of, by_numpy, batches):
    def model(x):
        step = tf.compat.v1.train.get_or_create_global_step()
        return tf.add(x, tf.cast(step, tf.float32), name="later")

    signature = [tf.TensorSpec([None], tf.float32, "x")]
    config = tpk.predict.PredictConfig(tower_func=model, input_signature=signature, output_names=["later"])
    assert predict_with(config, [1.0]) == [1]


def test_averages_are_taken_in_place_of_weights(tmp_path, model, config_of, by_numpy, batches):
    taken = TakeWeights()
    trainer = tpk.SimpleTrainer()
    source = tpk.TensorInput(lambda: [tf.random.normal([4, 3]), tf.random.normal([4, 2])])

    def optimizer():
        return tpk.MovingAverageOptimizer(model.get_optimizer(), decay=0.9)

    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, optimizer)
    trainer.train(callbacks=[tpk.ModelSaver(), taken], steps_per_epoch=20, max_epoch=1, run_dir=tmp_path)
    averages = {name: taken.values[f"{name}/{AVERAGE}"] for name in ("fc/W", "fc/b")}
    found = predict_with(config_of(session_init=AveragedWeights(tmp_path)), batches[0])
    np.testing.assert_allclose(found, by_numpy(batches[0], averages), rtol=1e-5, atol=1e-6)
    of_weights = predict_with(config_of(session_init=tmp_path), batches[0])
    assert np.abs(of_weights - found).max() > 1e-3


def test_averages_that_are_not_there_are_an_error(config_of):
    values = {"fc/W": np.zeros([3, 2]), "fc/b": np.zeros(2)}
    with pytest.raises(CheckpointError, match="the dictionary contains no averages of weights"):
        OfflinePredictor(config_of(session_init=AveragedWeights(values)))
    new = {**values, f"fc/W/{AVERAGE}": np.zeros([3, 2]), f"fc/W/{AVERAGE}/num_updates": 0}
    with pytest.raises(CheckpointError, match="never been updated"):
        OfflinePredictor(config_of(session_init=AveragedWeights(new)))
    with pytest.raises(CheckpointError, match="Wrap each element of a list"):
        AveragedWeights([values])


def test_variables_without_an_average_get_their_own_values(config_of, batches):
    values = {"fc/W": np.zeros([3, 2]), "fc/b": [3, 4], f"fc/W/{AVERAGE}": np.ones([3, 2])}
    found = predict_with(config_of(session_init=AveragedWeights(values)), batches[1])
    np.testing.assert_allclose(found, [batches[1].sum() + np.array([3, 4])], rtol=1e-5)
