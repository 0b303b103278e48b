"""Predictors and exported models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow
import tpk_tensorflow1 as tf
from tpk_tensorpack.predict import (
    DataParallelOfflinePredictor,
    FeedfreePredictor,
    MultiProcessDatasetPredictor,
    MultiThreadAsyncPredictor,
    MultiTowerOfflinePredictor,
    OfflinePredictor,
    OnlinePredictor,
    PredictConfig,
    PredictorBase,
    SimpleDatasetPredictor,
)
from tpk_tensorpack.tfutils.export import ModelExporter
from tpk_tensorpack.tfutils.sesscreate import NewSessionCreator
from tpk_tensorpack.tfutils.sessinit import DictRestore, SmartInit
from tpk_tensorpack.tfutils.tower import TowerFunc

import tpk
from tpk.errors import ConfigError

SIGNATURE = [
    tensorflow.TensorSpec([None, 3], tensorflow.float32, "x"),
    tensorflow.TensorSpec([None, 1], tensorflow.float32, "y"),
]
ONES = np.ones([1, 3])
TWOS = {"w": np.full(3, 2.0, np.float32)}


def tower(x, y):
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer())
    b = tf.get_variable("b", [3], initializer=tf.ones_initializer())
    out = tf.identity(x * w + b, name="out")
    tf.identity(out + y, name="both")


def config(**options):
    return PredictConfig(
        **{
            "tower_func": tower,
            "input_signature": SIGNATURE,
            "input_names": ["x"],
            "output_names": ["out"],
            "session_init": DictRestore(TWOS),
            **options,
        }
    )


def test_variables_without_a_value_keep_their_initial_ones():
    predict = OfflinePredictor(config())
    (out,) = predict(ONES)
    assert out.tolist() == [[3, 3, 3]]
    assert [tensor.name for tensor in predict.input_tensors] == ["x:0"]
    assert [tensor.name for tensor in predict.output_tensors] == ["out:0"]
    (initial,) = OfflinePredictor(config(session_init=SmartInit(None)))(ONES)
    assert initial.tolist() == [[2, 2, 2]]
    assert isinstance(predict, PredictorBase)
    predict.close()


def test_all_inputs_are_fed_unless_some_are_named():
    predict = OfflinePredictor(config(input_names=None, output_names=["both"]))
    (both,) = predict(ONES, [[1.0]])
    assert both.tolist() == [[4, 4, 4]]
    with pytest.raises(ValueError, match=r"takes 2 inputs \(x, y\), got 1"):
        predict(ONES)


def test_inputs_are_cast_as_a_feed_is():
    integers = PredictConfig(
        tower_func=lambda n: tf.identity(n, name="out"),
        input_signature=[tensorflow.TensorSpec([None], tensorflow.int32, "n")],
        output_names=["out"],
    )
    (out,) = OfflinePredictor(integers)(np.array([1.7, 2.0]))
    assert out.tolist() == [1, 2]


def test_a_tower_function_brings_its_signature():
    (out,) = OfflinePredictor(config(tower_func=TowerFunc(tower, SIGNATURE), input_signature=None))(ONES)
    assert out.tolist() == [[3, 3, 3]]


def test_inputs_are_returned_on_request():
    (x,), (out,) = OfflinePredictor(config(return_input=True))(ONES)
    assert x is ONES
    assert out.tolist() == [[3, 3, 3]]


def test_a_model_can_be_built_in_the_default_graph():
    with tensorflow.Graph().as_default() as graph:
        predict = OfflinePredictor(config(create_graph=False, session_creator=NewSessionCreator()))
        after = tf.identity(predict.output_tensors[0] + 1)
    assert predict.graph is graph
    assert predict.sess.run(after, {predict.input_tensors[0]: ONES}).tolist() == [[4, 4, 4]]


def test_a_predictor_of_a_session_that_exists():
    with tensorflow.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [2])
        assert OnlinePredictor([x], [x * 2])([1, 2])[0].tolist() == [2, 4]
    with tensorflow.Graph().as_default():
        x = tf.placeholder(tf.float32, [2])
        sess = tf.Session()
        predict = OnlinePredictor([x], [x * 3], return_input=True, sess=sess)
    (given,), (out,) = predict([1, 2])
    sess.close()
    assert (given, out.tolist()) == ([1, 2], [3, 6])


def test_towers_share_their_variables():
    several = MultiTowerOfflinePredictor(config(), [0, 1])
    assert several(ONES)[0].tolist() == [[3, 3, 3]]
    assert several.get_predictor(3) is several.get_predictors()[1]
    assert several.get_predictor(1)(ONES)[0].tolist() == [[3, 3, 3]]
    assert [variable.op.name for variable in several.graph.get_collection("variables")] == ["w", "b"]
    parallel = DataParallelOfflinePredictor(config(), [0, 1])
    assert [out.tolist() for out in parallel(ONES, 2 * ONES)] == [[[3, 3, 3]], [[5, 5, 5]]]
    for predictor in (MultiTowerOfflinePredictor, DataParallelOfflinePredictor):
        with pytest.raises(ValueError, match="expected GPU numbers"):
            predictor(config(), [])


def test_requests_are_computed_in_batches():
    predictor = MultiThreadAsyncPredictor([OfflinePredictor(config())], batch_size=4)
    predictor.start()
    done = []
    futures = [predictor.put_task([np.full(3, number)], callback=done.append) for number in range(8)]
    assert [future.result()[0].tolist() for future in futures] == [[2 * number + 1] * 3 for number in range(8)]
    (out,) = predictor(np.ones(3))
    assert out.tolist() == [3, 3, 3]
    predictor.close()
    assert len(done) == 8
    with pytest.raises(ValueError, match="return_input=False"):
        MultiThreadAsyncPredictor([OfflinePredictor(config(return_input=True))])


def test_a_data_flow_runs_through_a_model():
    data = [[number * ONES] for number in range(3)]
    results = SimpleDatasetPredictor(config(), data).get_all_result()
    assert [out[0, 0] for (out,) in results] == [1, 3, 5]
    with pytest.raises(ValueError, match="takes a PredictConfig, got 3"):
        SimpleDatasetPredictor(3, data)
    with pytest.raises(ValueError, match="use a SimpleDatasetPredictor"):
        MultiProcessDatasetPredictor(config(return_input=True), data, 2)
    with pytest.raises(ConfigError, match="num_proc"):
        MultiProcessDatasetPredictor(config(), data, 0)


def test_a_data_flow_runs_through_a_model_in_processes():
    def build(x):
        import tensorflow

        tensorflow.identity(x * 2, name="out")

    doubling = PredictConfig(
        tower_func=build,
        input_signature=[tensorflow.TensorSpec([None, 3], tensorflow.float32, "x")],
        output_names=["out"],
    )
    predictor = MultiProcessDatasetPredictor(doubling, [[number * ONES] for number in range(4)], 1, use_gpu=False)
    results = predictor.get_all_result()
    predictor.close()
    assert [out[0, 0] for (out,) in results] == [0, 2, 4, 6]


def test_an_input_source_runs_through_a_model():
    data = [[number * ONES.astype(np.float32), np.ones([1, 1], np.float32)] for number in range(3)]
    with FeedfreePredictor(config(output_names=["both"]), tpk.QueueInput(data, infinite=False)) as predict:
        assert [out[0, 0] for (out,) in predict] == [2, 4, 6]


def test_an_exported_model_is_served_by_the_names_of_its_tensors(tmp_path):
    directory = str(tmp_path / "exported")
    ModelExporter(config(input_names=None, output_names=["both"])).export_serving(directory)
    with tensorflow.Graph().as_default(), tf.Session() as sess:
        meta = tf.saved_model.load(sess, ["serve"], directory)
        signature = meta.signature_def["prediction_pipeline"]
        assert sorted(signature.inputs) == ["x:0", "y:0"]
        (both,) = sess.run([signature.outputs["both:0"].name], {"x:0": ONES, "y:0": [[1]]})
    assert both.tolist() == [[4, 4, 4]]


def test_an_exported_model_is_one_file(tmp_path):
    path = tmp_path / "model.pb"
    path.write_bytes(b"that of before")
    ModelExporter(config()).export_compact(str(path))
    graph_def = tf.GraphDef.FromString(Path(path).read_bytes())
    with tensorflow.Graph().as_default(), tf.Session() as sess:
        (out,) = tf.import_graph_def(graph_def, {"x:0": tf.constant(ONES, tf.float32)}, ["out:0"])
        assert sess.run(out).tolist() == [[3, 3, 3]]
    assert [each.name for each in tmp_path.iterdir()] == ["model.pb"]
