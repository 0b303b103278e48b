"""SavedModels, and the exporters and evaluations of `train_and_evaluate`."""

from __future__ import annotations

import os
from types import SimpleNamespace

import line
import numpy as np
import pytest
import tensorflow as tf
import tpk_estimator
from tpk_estimator import BestExporter, EvalSpec, FinalExporter, LatestExporter, TrainSpec, train_and_evaluate

v1 = tf.compat.v1


def receiver():
    x = v1.placeholder(tf.float32, [None, 2], name="x")
    return tpk_estimator.export.ServingInputReceiver({"x": x}, {"x": x})


def signatures_in(path, tags):
    with tf.Graph().as_default(), v1.Session() as sess:
        found = v1.saved_model.load(sess, tags, os.fsdecode(path)).signature_def
        return {
            name: (signature.method_name, sorted(signature.inputs), sorted(signature.outputs))
            for name, signature in found.items()
            if name.startswith(("serving", "train", "eval"))
        }


class TestExportSavedModel:
    def test_is_served_with_the_values_of_the_checkpoint(self, tmp_path):
        estimator = line.estimator(tmp_path).train(line.input_fn, steps=12)
        path = estimator.export_saved_model(tmp_path / "export", receiver)
        assert os.fsdecode(os.path.dirname(path)) == str(tmp_path / "export")
        served = tf.saved_model.load(os.fsdecode(path)).signatures["serving_default"]
        values = line.trained_by_hand(12)
        answer = served(x=tf.constant(line.X))
        np.testing.assert_allclose(answer["out"], line.X @ values["w"] + values["b"], rtol=1e-5)

    def test_contrib_makes_a_predictor_of_the_latest_checkpoint(self, tmp_path):
        predictor = pytest.importorskip("tpk_tensorflow1.contrib.predictor")
        estimator = line.estimator(tmp_path).train(line.input_fn, steps=2)
        predict = predictor.from_estimator(estimator, receiver)
        estimator.train(line.input_fn, steps=2)  # does not change the predictor
        values = line.trained_by_hand(2)
        np.testing.assert_allclose(predict({"x": line.X})["out"], line.X @ values["w"] + values["b"], rtol=1e-5)

    def test_two_in_one_second_have_different_names(self, tmp_path):
        estimator = line.estimator(tmp_path).train(line.input_fn, steps=1)
        paths = {estimator.export_saved_model(tmp_path / "export", receiver) for _ in range(2)}
        assert len(paths) == len(list((tmp_path / "export").iterdir())) == 2

    def test_copies_other_files(self, tmp_path):
        (tmp_path / "words").write_text("one two")
        estimator = line.estimator(tmp_path / "model").train(line.input_fn, steps=1)
        path = estimator.export_saved_model(tmp_path, receiver, {"text/words": str(tmp_path / "words")}, as_text=True)
        assert (tmp_path / os.fsdecode(path) / "assets.extra/text/words").read_text() == "one two"
        assert (tmp_path / os.fsdecode(path) / "saved_model.pbtxt").exists()

    def test_needs_a_checkpoint_and_a_function(self, tmp_path):
        with pytest.raises(ValueError, match="no checkpoint in"):
            line.estimator(tmp_path).export_saved_model(tmp_path, receiver)
        with pytest.raises(ValueError, match="needs a serving_input_receiver_fn"):
            line.estimator(tmp_path).export_saved_model(tmp_path, None)

    def test_has_a_graph_for_each_mode(self, tmp_path):
        def supervised():
            x, y = v1.placeholder(tf.float32, [None, 2]), v1.placeholder(tf.float32, [None, 1])
            return SimpleNamespace(features={"x": x}, labels=y, receiver_tensors={"x": x, "y": y})

        estimator = line.estimator(tmp_path).train(line.input_fn, steps=1)
        functions = {"train": supervised, "eval": supervised, "infer": receiver}
        path = estimator.experimental_export_all_saved_models(tmp_path / "export", functions)
        metrics = ["loss", "metrics/mae/update_op", "metrics/mae/value"]
        assert signatures_in(path, ["train"]) == {"train": ("tensorflow/supervised/training", ["x", "y"], metrics)}
        assert signatures_in(path, ["eval"]) == {"eval": ("tensorflow/supervised/eval", ["x", "y"], metrics)}
        predictions = ("tensorflow/serving/predict", ["x"], ["out", "twice"])
        assert signatures_in(path, ["serve"]) == {"serving_default": predictions}


class TestTrainAndEvaluate:
    def test_evaluates_each_checkpoint_but_the_first(self, tmp_path):
        specs = TrainSpec(line.input_fn, 25), EvalSpec(line.one_pass, throttle_secs=0)
        results, exports = train_and_evaluate(line.estimator(tmp_path), *specs)
        steps = [step for step, tag, _ in line.events_in(tmp_path / "eval") if tag == "loss"]
        assert (steps, results["global_step"], exports) == ([10, 20, 25], 25, [])

    def test_throttles_evaluations(self, tmp_path):
        specs = TrainSpec(line.input_fn, 25), EvalSpec(line.one_pass, throttle_secs=600)
        train_and_evaluate(line.estimator(tmp_path), *specs)
        steps = [step for step, tag, _ in line.events_in(tmp_path / "eval") if tag == "loss"]
        assert steps == [10, 25]

    def test_exports_the_latest_the_last_and_the_best(self, tmp_path):
        exporters = [LatestExporter("latest", receiver, exports_to_keep=2), FinalExporter("final", receiver)]
        exporters.append(BestExporter(serving_input_receiver_fn=receiver))
        specs = TrainSpec(line.input_fn, 30), EvalSpec(line.one_pass, throttle_secs=0, exporters=exporters)
        _, exports = train_and_evaluate(line.estimator(tmp_path), *specs)
        numbers = {path.name: len(list(path.iterdir())) for path in (tmp_path / "export").iterdir()}
        losses = [value for _, tag, value in line.events_in(tmp_path / "eval") if tag == "loss"]
        better = sum(loss < min([9, *losses[:position]]) for position, loss in enumerate(losses))
        assert numbers == {"latest": 2, "final": 1, "best_exporter": better}
        assert [os.path.basename(os.path.dirname(os.fsdecode(path))) for path in exports[:2]] == ["latest", "final"]

    def test_arguments_are_checked(self, tmp_path):
        with pytest.raises(TypeError, match="takes an Estimator, a TrainSpec and an EvalSpec, but got None"):
            train_and_evaluate(line.estimator(tmp_path), TrainSpec(line.input_fn), None)
        with pytest.raises(ValueError, match="max_steps"):
            TrainSpec(line.input_fn, 0)
        with pytest.raises(TypeError, match="hooks"):
            EvalSpec(line.one_pass, hooks=[print])
        with pytest.raises(ValueError, match="different names"):
            EvalSpec(line.one_pass, exporters=[FinalExporter("a", receiver), LatestExporter("a", receiver)])


class TestBestExporter:
    def exported(self, exporter, tmp_path, *results):
        class Exports:
            model_dir = str(tmp_path)
            paths = []

            def export_saved_model(self, path, *args, checkpoint_path, **options):
                os.makedirs(path, exist_ok=True)
                self.paths.append(checkpoint_path)

        estimator = Exports()
        for number, result in enumerate(results):
            exporter.export(estimator, str(tmp_path / "best"), str(number), result, False)
        return estimator.paths

    def test_exports_what_is_better_than_all_before(self, tmp_path):
        losses = [{"loss": loss} for loss in (3.0, 4.0, 2.0, 2.0, 1.0)]
        assert self.exported(BestExporter(), tmp_path, *losses) == ["0", "2", "4"]

    def test_compares_as_it_is_told(self, tmp_path):
        def compare(best_eval_result, current_eval_result):
            return current_eval_result["mae"] > best_eval_result["mae"]

        results = [{"mae": value} for value in (1.0, 3.0, 2.0)]
        assert self.exported(BestExporter(compare_fn=compare), tmp_path, *results) == ["0", "1"]
        with pytest.raises(ValueError, match="must take best_eval_result"):
            BestExporter(compare_fn=lambda old, new: True)

    def test_knows_the_results_of_earlier_processes(self, tmp_path):
        with tf.Graph().as_default(), v1.summary.FileWriter(str(tmp_path / "eval")) as writer:
            writer.add_summary(v1.Summary(value=[v1.Summary.Value(tag="loss", simple_value=2.0)]), 1)
        losses = [{"loss": loss} for loss in (3.0, 1.0)]
        # The first evaluation of a process is always exported.
        assert self.exported(BestExporter(), tmp_path, *losses) == ["0", "1"]
