"""Predictors of a training: on any strategy and device, with the weights of the moment."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, InputError, SessionError, TowerError, TrainerStateError

STRATEGIES = {
    "single": "single",
    "on a device": tpk.use("single", devices="/cpu:0"),
    "replicated": tpk.use("replicated", devices=2),
    "parameter_server": tpk.use("parameter_server", devices=2),
    "async": tpk.use("async", devices=2),
}


class Look(tpk.Callback):
    """Makes predictors in `setup_graph`, and compares them with the variables at the end of each epoch."""

    def __init__(self, make, compare):
        self.make, self.compare = make, compare
        self.epochs = 0

    def setup_graph(self, trainer):
        self.predictors = self.make(trainer)

    def trigger_epoch(self, trainer):
        names = ["fc/W", "fc/b"]
        variables = {each.op.name: each for each in tf.compat.v1.global_variables()}
        self.compare(self.predictors, trainer.sess.run({name: variables[name] for name in names}))
        self.epochs += 1


def train(model, strategy, *callbacks):
    trainer = tpk.SingleCostTrainer(strategy=strategy)
    source = tpk.TensorInput(lambda: [tf.ones([4, 3]), tf.zeros([4, 2])])
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    trainer.train(callbacks=callbacks, steps_per_epoch=2, max_epoch=3)
    return trainer


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_every_predictor_sees_the_weights_of_the_moment(model, by_numpy, batches, strategy):
    def make(trainer):
        count = len(trainer.towers.training())
        devices = [None, -1, "cpu", "/cpu:0", *range(count)]
        return [trainer.get_predictor(["x"], ["prediction"], device=device) for device in devices]

    seen = []

    def compare(predictors, weights):
        seen.append(weights["fc/W"])
        for predict in predictors:
            for x in batches[:2]:
                np.testing.assert_allclose(predict(x)[0], by_numpy(x, weights), rtol=1e-5, atol=1e-6)

    look = Look(make, compare)
    trainer = train(model, strategy, look)
    assert look.epochs == 3
    assert not np.array_equal(seen[0], seen[2]), "the weights have changed in between"
    variables = trainer.graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    assert len([each for each in variables if each.op.name.startswith("fc/")]) == 2, "and there is one of each"


def test_a_tower_is_built_once_for_a_device(model):
    def make(trainer):
        predictors = [
            trainer.get_predictor(["x"], ["prediction"], device=device)
            for device in ("cpu", -1, "/cpu:0", "/device:CPU:0", 0)
        ]
        predictors += [trainer.get_predictor(["x"], {"sum": "total"}, device=1)]
        assert len(trainer.towers.inference()) == 2
        assert {each.inputs[0].name for each in predictors[:5]} == {predictors[0].inputs[0].name}
        assert predictors[0].outputs[0].device == "/device:CPU:0"
        assert predictors[5].outputs[0].device == "/device:CPU:1"
        return predictors

    def compare(predictors, weights):
        assert list(predictors[5]([[1, 2, 3]])) == ["sum"]

    train(model, tpk.use("replicated", devices=["/cpu:0", "/cpu:1"]), Look(make, compare))


def test_several_predictors_are_spread_over_the_devices(model, by_numpy, batches):
    def make(trainer):
        predictors = trainer.get_predictors(["x"], ["prediction"], 5)
        assert [each.outputs[0].device[-1] for each in predictors] == ["0", "1", "0", "1", "0"]
        return predictors

    def compare(predictors, weights):
        with tpk.predict.MultiThreadAsyncPredictor(predictors, max_batch=2) as batched:
            futures = [batched.put_task([row]) for row in batches[0]]
            found = [future.result(60)[0] for future in futures]
        np.testing.assert_allclose(found, by_numpy(batches[0], weights), rtol=1e-5, atol=1e-6)

    look = Look(make, compare)
    train(model, tpk.use("replicated", devices=2), look)
    assert look.epochs == 3


def test_invalid_names_are_an_error_at_once(model):
    trainer = tpk.SingleCostTrainer()
    source = tpk.TensorInput(lambda: [tf.ones([4, 3]), tf.zeros([4, 2])])
    trainer.setup_graph(model.get_input_signature(), source, model.build_graph, model.get_optimizer)
    for arguments, error, message in [
        ((["x"], ["predictoin"]), TowerError, r"'predictoin'.*Nearest: 'prediction'"),
        ((["xx"], ["prediction"]), TowerError, "no tensor 'xx'"),
        ((["x"], ["cost"]), InputError, "depend on 'PredictTower/label'"),
        ((["x"], "prediction"), ConfigError, "output_names='prediction': expected a list"),
        (("x", ["prediction"]), ConfigError, "input_names='x': expected a list"),
        ((["x"], ["prediction"], 1), ConfigError, r"device=1 .*\(0 to 0\)"),
        ((["x"], ["prediction"], True), ConfigError, "device=True"),
        ((["x"], ["prediction"], "tpu"), ConfigError, "'tpu' is not a device"),
        ((["x"], ["prediction"], "/gpu:9"), ConfigError, "no device '/gpu:9'"),
    ]:
        with pytest.raises(error, match=message):
            trainer.get_predictor(*arguments)


def test_predicting_too_early_or_too_late_is_an_error(model):
    with pytest.raises(TrainerStateError, match="Call setup_graph"):
        tpk.SingleCostTrainer().get_predictor(["x"], ["prediction"])

    def compare(predictors, weights):
        trainer = look.trainer
        assert trainer.get_predictor(["x"], ["total"])([[1, 2, 3]])[0].shape == (1,), "its tower is there already"
        with pytest.raises(TowerError, match=r"graph is finalized.*setup_graph"):
            trainer.get_predictor(["x"], ["prediction"], device="/cpu:0")

    look = Look(lambda trainer: trainer.get_predictor(["x"], ["prediction"]), compare)
    train(model, "single", look)
    assert look.epochs == 3
    with pytest.raises(SessionError, match="by the end of the training"):
        look.predictors([[1, 2, 3]])
