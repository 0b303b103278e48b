"""Options of `PredictConfig`, and the graphs that it builds."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.errors import ConfigError, InputError, TowerError
from tpk.predict import OfflinePredictor, PredictConfig

X = tf.TensorSpec([None], tf.float32, "x")


def double(x):
    return tf.multiply(x, 2.0, name="doubled")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either a model, or a tower_func"),
        ({"tower_func": double}, "together with its input_signature"),
        ({"tower_func": double, "input_signature": [X], "model": tpk.ModelDesc}, r"Write ModelDesc\(\)"),
        ({"model": double}, "get_input_signature"),
        ({"tower_func": 3, "input_signature": [X]}, "tower_func=3"),
        ({"tower_func": double, "input_signature": [X], "output_names": "doubled"}, r"e.g. \['doubled'\]"),
        ({"tower_func": double, "input_signature": [X], "output_names": []}, "output_names=.*at least one name"),
        ({"tower_func": double, "input_signature": [X], "output_names": {"y": 3}}, "each a str"),
        ({"tower_func": double, "input_signature": [X], "input_names": "x"}, r"input_names='x'.*e.g. \['x'\]"),
        ({"tower_func": double, "input_signature": [X], "session_creator": "new"}, "SessionCreator"),
        ({"tower_func": double, "input_signature": [X], "device": 0}, "device string"),
        ({"tower_func": double, "input_signature": [X], "device": "gpu"}, "is not a device"),
        ({"tower_func": double, "input_signature": [X], "precision": "int8"}, "'bfloat16'"),
    ],
)
def test_an_invalid_option_is_an_error_that_names_it(options, message):
    with pytest.raises(ConfigError, match=message):
        PredictConfig(**{"output_names": ["doubled"], **options})


def test_a_function_without_variables_needs_no_weights():
    config = PredictConfig(tower_func=double, input_signature=[X], output_names=["doubled"])
    with OfflinePredictor(config) as predict:
        np.testing.assert_array_equal(predict([1, 2])[0], [2, 4])


def test_by_default_only_inputs_that_the_outputs_need_are_fed(config_of, by_numpy, batches):
    built = config_of().build_graph()
    assert list(built.inputs) == ["x"]
    assert list(config_of(output_names=["cost"]).build_graph().inputs) == ["x", "label"]
    sess = built.create_session()
    results = sess.run(built.outputs["prediction"], {built.inputs["x"]: batches[0]})
    np.testing.assert_allclose(results, by_numpy(batches[0]), rtol=1e-6, atol=1e-6)
    sess.close()


def test_an_output_that_needs_more_than_is_fed_is_an_error_when_the_graph_is_built(config_of):
    with pytest.raises(InputError, match=r"'cost' depend on 'label', which is not among the inputs \('x'\)"):
        config_of(input_names=["x"], output_names=["cost"]).build_graph()


def test_inputs_may_be_tensors_in_the_middle_of_the_model(config_of):
    config = config_of(input_names=["prediction:0"], output_names=["total"])
    with OfflinePredictor(config) as predict:
        np.testing.assert_array_equal(predict({"prediction": [[1, 2], [3, 4]]})[0], [3, 7])


def test_an_unknown_name_gets_the_near_ones(config_of):
    with pytest.raises(TowerError, match=r"no tensor 'predictoin'.*Nearest: 'prediction'"):
        config_of(output_names=["predictoin"]).build_graph()
    with pytest.raises(TowerError, match=r"no tensor 'lable'.*Nearest: 'label'"):
        config_of(input_names=["x", "lable"]).build_graph()
    with pytest.raises(InputError, match="named twice"):
        config_of(input_names=["x", "x:0"]).build_graph()


def test_towers_on_several_devices_share_their_variables(config_of):
    built = config_of().build_graph(["/cpu:0", "/cpu:1"])
    variables = built.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
    assert [variable.name for variable in variables] == ["fc/W:0", "fc/b:0"]
    devices = [tower.outputs["prediction"].device for tower in built.towers]
    assert devices == ["/device:CPU:0", "/device:CPU:1"]
    assert built.outputs["prediction"].name == "prediction:0", "the first tower is called what the model calls it"


def test_the_model_is_built_for_inference(config_of):
    seen = []

    def model(x):
        seen.append(tpk.get_current_tower_context().is_training)
        return tf.identity(x, name="same")

    config = PredictConfig(tower_func=model, input_signature=[X], output_names=["same"])
    config.build_graph()
    assert seen == [False]


def test_a_precision_is_that_of_the_tower(config_of, by_numpy, batches):
    with OfflinePredictor(config_of(precision="bfloat16")) as predict:
        assert predict.outputs[0].dtype == tf.bfloat16
        (prediction,) = predict(batches[0])
        np.testing.assert_allclose(prediction.astype(np.float32), by_numpy(batches[0]), rtol=0.05, atol=0.05)


def test_the_session_is_the_creators(config_of):
    limited = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1)
    config = config_of(session_creator=tpk.NewSessionCreator(config=limited), device="/cpu:1")
    with OfflinePredictor(config) as predict:
        assert predict.sess._config.intra_op_parallelism_threads == 1
        assert len([each for each in predict.sess.list_devices() if each.device_type == "CPU"]) == 2
    assert not limited.device_count["CPU"], "the user's own config is left alone"
