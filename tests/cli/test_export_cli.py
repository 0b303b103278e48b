from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.cli.main import main

MODULE = "model_of_export_test"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A directory with the module of a model, and the run that trained it."""
    directory = tmp_path_factory.mktemp("project")
    (directory / f"{MODULE}.py").write_text(
        textwrap.dedent(
            """
            import tensorflow as tf
            import tpk

            class Linear(tpk.ModelDesc):
                def inputs(self):
                    return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 2], tf.float32, "label")]

                def build_graph(self, x, label):
                    w = tf.compat.v1.get_variable("w", [3, 2], initializer=tf.compat.v1.ones_initializer())
                    prediction = tf.matmul(x, w, name="prediction")
                    tf.math.erf(prediction, name="error_function")
                    return tf.reduce_mean((prediction - label) ** 2, name="cost")

                def optimizer(self):
                    return tpk.MovingAverageOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))

            class Named(Linear):
                output_names = ["prediction"]

            class Demanding(Linear):
                def __init__(self, size):
                    self.size = size

            named = Named()

            def make():
                return Named()

            number = 3

            def broken():
                raise ZeroDivisionError("inside of the model")
            """
        )
    )
    sys.path.insert(0, str(directory))
    try:
        model = importlib.import_module(MODULE).Linear()
    finally:
        sys.path.remove(str(directory))
    data = [[np.eye(3, dtype=np.float32), np.zeros([3, 2], np.float32)]]

    class Scores(tpk.Callback):
        def trigger_epoch(self, trainer):
            trainer.monitors.put_scalar("val/error", abs(trainer.epoch_num - 2))

    tpk.launch_train_with_config(
        tpk.TrainConfig(
            model=model,
            dataflow=data,
            run_dir=directory / "run",
            callbacks=[tpk.ModelSaver(), Scores(), tpk.MinSaver("val/error")],
            steps_per_epoch=1,
            max_epoch=3,
        )
    )
    sys.modules.pop(MODULE)
    return directory


@pytest.fixture
def project(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(trained)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield trained
    sys.modules.pop(MODULE, None)


def weights_at(project, step, name="w"):
    return tf.train.load_checkpoint(str(project / "run" / f"model-{step}")).get_tensor(name)


def computed(path, x):
    function = tf.saved_model.load(str(path)).signatures["serving_default"]
    return function(x=tf.constant(x))["prediction"].numpy()


X = np.eye(3, dtype=np.float32)


def export(capsys, *arguments):
    assert main(["export", "run", *map(str, arguments)]) == 0
    return capsys.readouterr().out


@pytest.mark.timeout(240)
def test_a_run_is_exported_by_a_fresh_process(project, tmp_path):
    program = "import sys; from tpk.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "export", "run", f"{MODULE}:Linear", "--to", "savedmodel"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    ran = subprocess.run(
        [*command, tmp_path / "out", "--outputs", "prediction"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[1:] == [
        "serving_default  name        dtype    shape   tensor",
        "input            x           float32  [?, 3]  x:0",
        "output           prediction  float32  [?, 2]  prediction:0",
    ]
    np.testing.assert_array_equal(computed(tmp_path / "out", X), weights_at(project, 3))


@pytest.mark.parametrize("name", ["Named", "named", "make"])
def test_a_model_can_be_a_class_an_instance_or_a_function(project, name, tmp_path, capsys):
    out = export(capsys, f"{MODULE}:{name}", tmp_path / "out")
    assert out.startswith(f"{tmp_path / 'out'}: savedmodel of run/model-3, ")
    np.testing.assert_array_equal(computed(tmp_path / "out", X), weights_at(project, 3))


@pytest.mark.parametrize(
    ("checkpoint", "step"),
    [("1", 1), ("model-2", 2), ("min-val/error", 2), ("min-val_error", 2), ("min-val_error-2", 2), ("run/model-1", 1)],
)
def test_a_checkpoint_can_be_named_by_step_name_saver_or_path(project, checkpoint, step, tmp_path, capsys):
    export(capsys, f"{MODULE}:Named", tmp_path / "out", "--checkpoint", checkpoint)
    np.testing.assert_array_equal(computed(tmp_path / "out", X), weights_at(project, step))


@pytest.mark.parametrize(("path", "step"), [("run/model-1", 1), ("run/1", 1), ("run/min-val_error", 2)])
def test_a_checkpoint_can_be_given_instead_of_the_run(project, path, step, tmp_path, capsys):
    assert main(["export", path, f"{MODULE}:Named", str(tmp_path / "out")]) == 0
    np.testing.assert_array_equal(computed(tmp_path / "out", X), weights_at(project, step))


@pytest.mark.parametrize(
    ("path", "step"), [("run", 3), ("run/2", 2), ("run/min-val_error", 2), ("run/min-val/error", 2)]
)
def test_a_predictor_accepts_the_same_names(project, path, step):
    sys.path.insert(0, str(project))
    model = importlib.import_module(MODULE).Linear()
    with tpk.OfflinePredictor(
        tpk.PredictConfig(model=model, session_init=path, output_names=["prediction"])
    ) as predict:
        np.testing.assert_array_equal(predict(X)[0], weights_at(project, step))


def test_averages_can_be_exported_instead_of_the_weights(project, tmp_path, capsys):
    export(capsys, f"{MODULE}:Named", tmp_path / "out", "--averaged")
    average = weights_at(project, 3, "w/ExponentialMovingAverage")
    assert np.any(average != weights_at(project, 3))
    np.testing.assert_array_equal(computed(tmp_path / "out", X), average)


def test_json_describes_the_exported_model(project, tmp_path, capsys):
    arguments = ("--inputs", "x,label", "--outputs", "y=prediction, cost", "--to", "frozen", "--json")
    data = json.loads(export(capsys, f"{MODULE}:Linear", tmp_path / "model.pb", *arguments))
    assert data["format"] == "frozen" and data["weights"] == "run/model-3"
    assert data["size"] == (tmp_path / "model.pb").stat().st_size
    signature = data["signatures"]["serving_default"]
    assert signature["inputs"]["label"] == {"dtype": "float32", "shape": [None, 2], "tensor": "label:0"}
    assert {key: each["tensor"] for key, each in signature["outputs"].items()} == {
        "y": "prediction:0",
        "cost": "cost:0",
    }
    graph_def = tf.compat.v1.GraphDef.FromString((tmp_path / "model.pb").read_bytes())
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        tf.graph_util.import_graph_def(graph_def, name="")
        np.testing.assert_array_equal(sess.run("prediction:0", {"x:0": X}), weights_at(project, 3))


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_tensorflow_lite_can_be_exported(project, tmp_path, capsys):
    export(capsys, f"{MODULE}:Named", "--to", "tflite", tmp_path / "model.tflite")
    runner = tf.lite.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner("serving_default")
    np.testing.assert_allclose(runner(x=X)["prediction"], weights_at(project, 3), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "M:Linear"], "does not name its outputs. Give --outputs"),
        (["run", "M:Linear", "--outputs", "predicton"], "no tensor 'predicton'. Nearest: 'prediction'"),
        (["run", "M:Linear", "--outputs", "cost", "--inputs", "labl"], "no tensor 'labl'. Nearest: 'label'"),
        (["run", "M:Linear", "--outputs", "cost", "--inputs", "x"], "depend on 'label', which is not among the inputs"),
        (["run", "M:Linear", "--outputs", "cost,,x"], "--outputs 'cost,,x': expected names separated by commas"),
        (["run", "M:Named", "--checkpoint", "model-20"], "there is no checkpoint 'run/model-20'"),
        (["run", "M:Named", "--checkpoint", "min-val"], "Nearest: 'min-val_error'"),
        (
            ["run", "M:Named", "--checkpoint", "7"],
            "The latest in 'run': model-1, min-val_error-2, model-2, model-3, min-val_error.",
        ),
        (["nowhere", "M:Named"], "there is no checkpoint 'nowhere'"),
        (["nowhere", "M:Named", "--checkpoint", "1"], "'nowhere' is not a directory"),
        ([".", "M:Named"], "there is no checkpoint in the directory '.'"),
        (["run", "M:Lineal"], "Nearest: 'Linear'"),
        (["run", "M"], "expected module:attribute, such as my_model:Model"),
        (["run", "M.py:Linear"], "names a file; expected a module. Write M:Linear."),
        (["run", "no_such_module:Linear"], "cannot be imported: No module named 'no_such_module'"),
        (["run", "M:Demanding"], "cannot be called without arguments: missing a required argument: 'size'"),
        (["run", "M:number"], "is 3; expected a tpk.ModelDesc"),
        (["run", "M:Named", "--precision", "float8"], "precision must be one of 'float32'"),
        (
            ["run", "M:Linear", "--outputs", "error_function", "--to", "tflite"],
            "lacks operations that the outputs need: Erf",
        ),
    ],
)
def test_an_invalid_argument_is_an_error_of_one_line_and_leaves_no_file(project, arguments, message, tmp_path, capsys):
    run_dir, target, *options = arguments
    assert main(["export", run_dir, target.replace("M", MODULE, 1), str(tmp_path / "out"), *options]) == 1
    output, error = capsys.readouterr()
    lines = [line for line in error.splitlines() if line.startswith("tpk: ")]
    assert len(lines) == 1 and error.endswith(f"{lines[0]}\n")
    assert message.replace("M:", f"{MODULE}:") in lines[0] or message in lines[0]
    assert not output
    assert not list(tmp_path.iterdir())


def test_an_existing_path_is_refused_before_anything_is_loaded(project, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    assert main(["export", "nowhere", "nothing:Model", str(tmp_path / "out")]) == 1
    assert "out exists already" in capsys.readouterr().err


def test_an_error_in_the_model_keeps_its_traceback(project, tmp_path):
    with pytest.raises(ZeroDivisionError, match="inside of the model"):
        main(["export", "run", f"{MODULE}:broken", str(tmp_path / "out")])


def test_the_help_needs_no_tensorflow():
    program = """
import sys
from tpk.cli.main import main
assert main(["export", "--help"]) == 0
assert not {"tensorflow", "numpy"} & sys.modules.keys()
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=True)
    assert "savedmodel" in shown.stdout
