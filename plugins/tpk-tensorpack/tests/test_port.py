"""The converter: names, whole scripts, and that converted scripts behave the same."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tpk_tensorpack
from tpk_tensorpack.port import ConversionError, convert, names
from tpk_tensorpack.port.__main__ import main

import tpk

SCRIPTS = Path(__file__).parent / "scripts"
# Fast deterministic scripts; `tests/oracle/test_converted.py` runs all of them.
RUNS = [
    "resume.py",
    "resume.py,--load,train_log/resume/checkpoint,--from-epoch,3",
    "hooks.py",
    "gan.py",
    "surgery.py",
    "autoresume.py",
    "autoresume.py,--epochs,3",
    "saliency.py",
    "fine_tune.py",
    "gan_towers.py",
    "spatial_transformer.py",
    "super_resolution.py",
]


def converted(source):
    """Return the converted source, without marks."""
    conversion = convert(source)
    assert conversion.marks == ()
    return conversion.code


# Names, calls and imports


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tf.train.AdamOptimizer(1e-3)", "tf.compat.v1.train.AdamOptimizer(1e-3)"),
        ("tf.nn.relu(x)", "tf.nn.relu(x)"),
        ("tf.reduce_mean(x, 1, name='mean')", "tf.reduce_mean(x, 1, name='mean')"),
        ("tf.reduce_mean(x, reduction_indices=1)", "tf.compat.v1.reduce_mean(x, reduction_indices=1)"),
        ("tf.reduce_mean(x, keep_dims=True)", "tf.compat.v1.reduce_mean(x, keep_dims=True)"),
        ("tf.argmax(x, 1, name='best')", "tf.compat.v1.argmax(x, 1, name='best')"),
        ("tf.nn.in_top_k(logits, label, 1)", "tf.compat.v1.nn.in_top_k(logits, label, 1)"),
        ("tf.where(x > 0, x, y)", "tf.compat.v1.where(x > 0, x, y)"),
        ("tf.layers.dense(x, 2)", "tpk.layers.dense(x, 2)"),
        ("tf.nn.rnn_cell.GRUCell(2)", "tpk.layers.rnn_cell.GRUCell(2)"),
        ("tf.contrib.rnn.static_rnn(cell, x)", "tf.compat.v1.nn.static_rnn(cell, x)"),
        ("tf.contrib.layers.xavier_initializer()", "tf1.contrib.layers.xavier_initializer()"),
        ("tf.contrib.slim.conv2d(x, 2, 3)", "tf1.contrib.slim.conv2d(x, 2, 3)"),
        ("tf.compat.v1.layers.flatten(x)", "tpk.layers.flatten(x)"),
        ("tf.float32.as_numpy_dtype", "tf.float32.as_numpy_dtype"),
        ("np.zeros(3, np.float)", "np.zeros(3, float)"),
        ("np.product(x) + np.NINF", "np.prod(x) + -np.inf"),
        ("np.asfarray(x)", "numpy1.asfarray(x)"),
    ],
)
def test_names_of_tensorflow_and_numpy(before, after):
    code = converted(
        f"import numpy as np\nimport tensorflow as tf\n\ndef f(x, y, logits, label, cell):\n    {before}\n"
    )
    assert code.splitlines()[-1] == f"    {after}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ModelSaver(3)", "tpk.ModelSaver(3, keep_checkpoint_every_n_hours=0.5)"),
        ("DataFromList(x)", "tpk.DataFromList(x, shuffle=True)"),
        ("DataFromList(lst=x, shuffle=False)", "tpk.DataFromList(items=x, shuffle=False)"),
        ("SmartInit(x)", "tpk.SmartInit(x, must_match=False)"),
        ("HumanHyperParamSetter('lr', 'h.txt')", "tpk.HumanHyperParamSetter('lr', 'h.txt')"),
        ("HumanHyperParamSetter('lr', file_name='h.txt')", "tpk.HumanHyperParamSetter('lr', path='h.txt')"),
        ("StartProcOrThread(x, stop_at_last=True)", "tpk.StartProcOrThread(x)"),
        ("SyncMultiGPUTrainerReplicated(2, mode='nccl')", "tpk.SyncMultiGPUTrainerReplicated(2, mode='nccl')"),
        ("SyncMultiGPUTrainer(gpus=[0, 1])", 'tpk.SyncMultiGPUTrainer(devices=[0, 1], ps_device="cpu")'),
        ("ScalarStats(['cost', 'error'])", "tpk.ScalarStats(['cost', 'error'])"),
        ("ScalarStats('tower/cost')", "ScalarStats('tower/cost')"),
        ("MinSaver('cost', True)", "MinSaver('cost', True)"),
        ("MapData(x, lambda dp: dp[:1])", "tpk.MapData(x, lambda dp: dp[:1])"),
        ("MapData(x, f)", "MapData(x, f)"),
        ("BatchData(x, 2)", "BatchData(x, 2)"),
        ("DEFAULT_MONITORS()", "[tpk.TFEventWriter(), tpk.JSONWriter(), tpk.ScalarPrinter()]"),
        ("ModelSaver(*x)", "ModelSaver(*x)"),
        ("isinstance(x, ModelSaver)", "isinstance(x, tpk.ModelSaver)"),
        ("PeriodicTrigger(x, every_k_steps=2)", "tpk.PeriodicTrigger(x, every_k_steps=2)"),
        ("tower.TowerContext('', True)", "tpk.TrainTowerContext(ns_name='')"),
        ("tower.TowerContext('', False)", "tower.TowerContext('', False)"),
        ("summary.add_param_summary(('.*/W', ['rms']))", "tpk.add_param_summary(('.*/W', ['rms']))"),
    ],
)
def test_names_of_tensorpack(before, after):
    code = converted(f"from tensorpack import *\n\ndef f(x):\n    {before}\n")
    assert code.splitlines()[-1] == f"    {after}"
    name = after.partition("(")[0].partition(".")[0]
    stays = not after.startswith(("tpk.", "[", "isinstance"))
    assert (f"import {name}\n" in code) == (stays or name == "tpk")


def test_each_rule_leads_to_what_tpk_has():
    for name, rule in names.CONVERTED.items():
        ours, theirs = getattr(tpk, rule.to), _find(name)
        parameters = set(inspect.signature(ours).parameters)
        assert set(rule.renamed.values()) | set(rule.added) <= parameters, name
        if name != "AutoResumeTrainConfig" and theirs is not None:
            its = set(inspect.signature(theirs).parameters)
            assert set(rule.renamed) | set(rule.dropped) | set(rule.kept_with) <= its, name
    for name in (*names.KEPT, *names.EXPRESSIONS, *names.TRAINING):
        assert _find(name) is not None, name
    for name, arguments in names.SAME_CALLS.items():
        assert set(arguments) <= set(inspect.signature(_at(tf.compat.v1, name)).parameters), name
    assert set(names.STAY_WITH_TRAINING) <= set(names.CONVERTED)
    assert set(names.HOOKS) - {"trigger", "get_value_to_set"} <= set(tpk.plugin.HOOK_NAMES)


def _find(name):
    for module in ("", "tfutils.summary", "tfutils.optimizer", "tfutils.tower", "tfutils.export", "tfutils"):
        place = tpk_tensorpack if not module else _module(module)
        if hasattr(place, name):
            return getattr(place, name)
    return None


def _module(name):
    import importlib

    return importlib.import_module(f"tpk_tensorpack.{name}")


def _at(place, name):
    for each in name.split("."):
        place = getattr(place, each)
    return place


def test_functions_that_are_left_to_tensorflow_2_compute_the_same():
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    labels = np.array([0, 2])
    calls = {
        name: ((x,), {})
        for name in names.SAME_CALLS
        if name.startswith(("reduce", "arg")) and name not in ("reduce_all", "reduce_any")
    }
    calls |= {name: ((x,), {}) for name in ("ones_like", "zeros_like", "shape", "size", "transpose", "constant")}
    calls |= {name: ((x,), {}) for name in ("nn.softmax", "nn.log_softmax", "nn.leaky_relu", "squeeze")}
    calls |= {
        "expand_dims": ((x, 0), {}),
        "gather": ((x, [0]), {}),
        "pad": ((x, [[1, 0], [0, 1]]), {}),
        "nn.moments": ((x, [0]), {}),
        "nn.in_top_k": ((), {"predictions": x, "targets": labels, "k": 1}),
        "nn.sigmoid_cross_entropy_with_logits": ((), {"logits": x, "labels": x}),
        "nn.sparse_softmax_cross_entropy_with_logits": ((), {"logits": x, "labels": labels}),
    }
    with tf.Graph().as_default(), tf.compat.v1.Session() as sess:
        for name, (args, kwargs) in calls.items():
            old, new = (_at(place, name)(*args, **kwargs) for place in (tf.compat.v1, tf))
            for one, other in zip(*sess.run([tf.nest.flatten(old), tf.nest.flatten(new)]), strict=True):
                np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_flow_whose_older_method_is_called_stays():
    code = converted("from tensorpack import *\n\nflow = RepeatedData(DataFromList(x), 2)\nnext(flow.get_data())\n")
    assert "flow = RepeatedData(DataFromList(x), 2)" in code
    assert "tpk." not in code


def test_the_docstring_stays_first_in_a_module_without_imports_at_its_top():
    code = converted('"""About."""\n\n\ndef f():\n    from tensorpack import Callback\n    return Callback()\n')
    assert code.splitlines()[:2] == ['"""About."""', "import tpk"]


def test_imports_are_those_that_are_needed_and_comments_stay():
    code = converted(
        """\
# What this is.
from tensorpack import (  # all of it
    Conv2D,
    ModelSaver,
)
# About logging.
from tensorpack.utils import logger  # here
import tensorpack.tfutils.symbolic_functions
import tensorflow.compat.v1 as tf


def f(image):
    logger.warn("a")  # a comment
    ModelSaver = Conv2D("c", image, 2, 3)
    tensorpack.tfutils.symbolic_functions.rms(ModelSaver)
    return tf.layers.flatten(tf.square(ModelSaver))
"""
    )
    reason = names.KEPT["Conv2D"]
    assert code == (
        f"""\
# What this is.
import logging

import tpk
# tensorpack's Conv2D: {reason}.
from tpk_tensorpack import Conv2D
# About logging.
import tpk_tensorpack.tfutils.symbolic_functions
import tensorflow.compat.v1 as tf

logger = logging.getLogger(f"tpk.{{__name__}}")


def f(image):
    logger.warning("a")  # a comment
    ModelSaver = Conv2D("c", image, 2, 3)
    tpk_tensorpack.tfutils.symbolic_functions.rms(ModelSaver)
    return tpk.layers.flatten(tf.square(ModelSaver))
"""
    )


# Classes


def test_a_callback_gets_tpks_hooks():
    code = converted(
        """\
import tensorflow as tf
from tensorpack.callbacks import Callback


class Noted(Callback):
    _chief_only = False

    def _setup_graph(self):
        \"\"\"Look.\"\"\"
        (cost,) = self.get_tensors_maybe_in_tower(["cost"])
        self.double = tf.multiply(cost, 2)

    def _before_run(self, _):
        return tf.train.SessionRunArgs([self.double])

    def _after_run(self, ctx, values):
        print(ctx, values.results)

    def _trigger_epoch(self):
        super()._trigger_epoch()
        self._trigger()

    def _trigger(self):
        print(self.graph)


class Finer(Noted):
    def _trigger_epoch(self):
        super()._trigger_epoch()
"""
    )
    assert code == (
        """\
import tensorflow as tf
import tpk


class Noted(tpk.Callback):
    chief_only = False

    def setup_graph(self):
        \"\"\"Look.\"\"\"
        with tf.name_scope(type(self).__name__):
            (cost,) = [tpk.find_tensor(self.trainer, name) for name in ["cost"]]
            self.double = tf.multiply(cost, 2)

    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs([self.double])

    def after_run(self, run_context, run_values):
        print(run_context, run_values.results)

    def trigger_epoch(self):
        super().trigger_epoch(self.trainer)
        self.trigger()

    def trigger(self):
        print(self.trainer.graph)


class Finer(Noted):
    def trigger_epoch(self):
        super().trigger_epoch()
"""
    )


def test_an_inferencer_gets_tpks_methods():
    code = converted(
        """\
from tensorpack.callbacks import Inferencer


class Largest(Inferencer):
    def _before_inference(self):
        self.largest = 0

    def _get_fetches(self):
        return ["cost"]

    def _on_fetches(self, results):
        self.largest = max(self.largest, results[0])

    def _after_inference(self):
        return {"largest": self.largest}
"""
    )
    assert "class Largest(tpk.Inferencer):" in code
    assert 'def get_fetches(self, tower):\n        return [tower.get_tensor(name) for name in ["cost"]]' in code
    assert "    def _" not in code


def test_a_model_has_specs_for_placeholders():
    code = converted(
        """\
import tensorflow as tf
from tensorpack import ModelDesc


class Model(ModelDesc):
    def inputs(self):
        return [tf.placeholder(tf.int32, [None], "x"), tf.placeholder(tf.float32, name="y")]

    def build_graph(self, x, y):
        return y if self.training else x

    def optimizer(self):
        return tf.train.AdamOptimizer()
"""
    )
    assert 'return [tf.TensorSpec([None], tf.int32, "x"), tf.TensorSpec(None, tf.float32, "y")]' in code
    assert "return y if tpk.get_current_tower_context().is_training else x" in code
    assert "disable_v2_behavior" not in code


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("    def _before_run(self, _):\n        return ['cost']\n", "names of tensors"),
        ("    name_scope = 'here'\n    def _trigger(self):\n        pass\n", "it sets name_scope"),
        ("    def _trigger(self):\n        pass\n    def trigger(self):\n        pass\n", "both trigger and _trigger"),
        ("    def _trigger(self, more):\n        pass\n", "different arguments"),
    ],
)
def test_a_callback_that_tpk_cannot_have_stays(body, reason):
    source = f"from tensorpack.callbacks import Callback\n\nclass Mine(Callback):\n{body}"
    conversion = convert(source)
    assert conversion.marks == ()
    assert any(reason in note.text for note in conversion.notes)
    assert conversion.code.endswith(f"class Mine(Callback):\n{body}")


# The training run, its log and its directory

TRAINING = """\
from tensorpack import *

if __name__ == "__main__":
    {setting}
    config = TrainConfig(model=model, dataflow=flow, callbacks=[ModelSaver if save else None], {more}max_epoch=2)
    launch_train_with_config(config, {trainer})
"""


def training(setting="logger.auto_set_dir('d')", more="", trainer="SimpleTrainer()"):
    return convert(TRAINING.format(setting=setting, more=more, trainer=trainer))


def test_the_log_directory_is_that_of_the_run():
    code = training().code
    assert 'run_dir = f"train_log/{Path(__file__).stem}"\n    shutil.rmtree(run_dir, ignore_errors=True)\n' in code
    assert "max_epoch=2, run_dir=run_dir)\n    tpk.launch_train_with_config(config, tpk.SimpleTrainer())" in code
    assert "callbacks=[*([tpk.ModelSaver] if save else [])]" in code
    assert "import shutil\nfrom pathlib import Path\n" in code
    code = training("logger.set_logger_dir(where, action='k')").code
    assert "run_dir = where\n    config = tpk.TrainConfig(" in code
    assert 'run_dir=run_dir, resume="auto")' in code
    asked = training("logger.set_logger_dir('log')")
    assert 'run_dir = "log"'.replace('"', "'") in asked.code
    assert any("an error is raised if the directory holds a run" in note.text for note in asked.notes)


def test_what_is_unlike_tpk_keeps_the_logger_and_tells_the_run():
    code = training("logger.set_logger_dir('log', action=input())").code
    assert "logger.set_logger_dir('log', action=input())" in code
    assert 'run_dir=logger.get_logger_dir(), resume="auto")' in code
    assert "from tpk_tensorpack import logger\n" in code


def test_a_run_that_goes_on_by_itself_is_resumed():
    source = TRAINING.format(setting="logger.auto_set_dir('k')", more="", trainer="SimpleTrainer()")
    code = converted(source.replace("TrainConfig(model", "AutoResumeTrainConfig(always_resume=True, model"))
    assert "config = tpk.TrainConfig(model=model," in code
    assert 'run_dir=run_dir, resume="auto")' in code


def test_a_training_that_tpk_cannot_have_stays_as_a_whole():
    for changed in ({"more": "nr_tower=2, "}, {"trainer": "SimpleTrainer().get_predictor(['x'], ['y'])"}):
        conversion = training(**changed)
        assert conversion.marks == ()
        assert "launch_train_with_config(config, SimpleTrainer()" in conversion.code
        assert "config = TrainConfig(" in conversion.code
        assert "logger.auto_set_dir('d')" in conversion.code


@pytest.mark.parametrize(("times", "stays"), [(1, False), (2, True)])
def test_a_trainer_stays_whose_steps_count_several_times(times, stays):
    runs = "        self.hooked_sess.run(self.train_op)\n" * times
    code = converted(
        "from tensorpack import MergeAllSummaries, TowerTrainer\n\nclass GAN(TowerTrainer):\n"
        f"    def run_step(self):\n{runs}\nsummaries = MergeAllSummaries(period=5)\n"
    )
    assert ("class GAN(TowerTrainer)" in code) == stays
    assert ("class GAN(tpk.TowerTrainer)" in code) != stays
    # tpk's would be evaluated only in the first of these runs.
    assert ("summaries = MergeAllSummaries(period=5)" in code) == stays
    assert ("summaries = tpk.MergeAllSummaries(period=5)" in code) != stays


def test_the_steps_of_an_epoch_are_not_divided_among_devices():
    assert "steps_per_epoch=len(flow)" in training(trainer="SyncMultiGPUTrainer(2)").code
    source = TRAINING.format(setting="pass", more="", trainer="SyncMultiGPUTrainer(2)")
    marked = convert(source.replace("=flow", "=get_data()"))
    assert [mark.text for mark in marked.marks] == [
        "pass steps_per_epoch: tpk's default divides the data among the devices"
    ]
    assert (
        "    # tpk: pass steps_per_epoch: tpk's default divides the data among the devices\n    config" in marked.code
    )


def test_tensorflow_is_set_to_its_tf1_behaviour_where_that_is_needed():
    switch = "\ntf.compat.v1.disable_v2_behavior()\ntf.compat.v1.enable_resource_variables()\n"
    assert switch in converted("import tensorflow as tf\n\ndef f():\n    return tf.Session()\n")
    assert switch in converted("from tensorpack.compat import tfv1 as tf\n\nx = tf.constant(1)\n")
    assert switch in converted("import tensorflow as tf\n\ndef f():\n    return tf.nn.dynamic_rnn(cell, x)\n")
    assert switch not in converted("import tensorflow as tf\n\ndef f():\n    return tf.get_variable('x')\n")
    theirs = "import tensorflow.compat.v1 as tf\n\ntf.disable_v2_behavior()\nsess = tf.Session()\n"
    assert converted(theirs) == theirs


# Marks and errors


def test_what_has_no_equivalent_is_marked():
    source = "import tensorflow as tf\n\nif True:\n    # Why.\n    x = tf.contrib.boosted_trees.grow(x)\n"
    conversion = convert(source)
    assert [mark.line for mark in conversion.marks] == [5]
    assert "    # Why.\n    # tpk: tf.contrib.boosted_trees is not" in conversion.code
    assert "x = tf.contrib.boosted_trees.grow(x)" in conversion.code
    assert "1 marks" in conversion.summary("train.py")
    (mark,) = convert("import importlib\nimport numpy\nimportlib.import_module('tensorpack.models')\n").marks
    assert "through a string" in mark.text
    (mark,) = convert("from tensorpack import NoSuchThing\nNoSuchThing()\n").marks
    assert "NoSuchThing" in mark.text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:\n", "is not valid Python 3"),
        ("print 'a'\n", "is not valid Python 3"),
        ("import tpk\nimport numpy as np\n", "imports tpk: it has already been converted"),
        ("import os\n", "nothing to convert"),
    ],
)
def test_what_cannot_be_converted_is_an_error(source, message):
    with pytest.raises(ConversionError, match=message):
        convert(source)


def test_without_libcst_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "libcst", None)
    with pytest.raises(ImportError, match=r"pip install 'tpk-tensorpack\[port\]'"):
        convert("import tensorpack\n")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["config.nr_tower = 2", "launch_train_with_config(config, SimpleTrainer())"], "nr_tower"),
        (["SyncMultiGPUTrainer(config).train()"], "by train()"),
    ],
)
def test_trainers_that_are_made_of_their_config_stay(lines, why):
    code = converted("\n".join(["from tensorpack import *", "config = TrainConfig(model=m, dataflow=d)", *lines]))
    assert "tpk.TrainConfig" not in code and "tpk.S" not in code
    assert why in code


def test_the_modules_of_a_script_are_converted_with_it(tmp_path, monkeypatch, capsys):
    source, out = tmp_path / "source", tmp_path / "out"
    package = source / "data"
    package.mkdir(parents=True)
    (source / "main.py").write_text("from tensorpack import ModelSaver\nfrom data.flows import flow\nimport plain\n")
    (source / "plain.py").write_text("import os\n")
    # A script in a package: its own directory and the one above have an __init__.py.
    for directory in (tmp_path, source):
        (directory / "__init__.py").write_text("")
    (source / "other.py").write_text("from tensorpack import ModelSaver\n")
    (package / "__init__.py").write_text("")
    (package / "flows.py").write_text("from tensorpack import DataFromList\nfrom . import more\nflow = DataFromList\n")
    (package / "more.py").write_text("import tensorflow as tf\n\n\ndef f():\n    return tf.placeholder(tf.float32)\n")
    monkeypatch.setattr(sys, "argv", ["port", str(source / "main.py"), "--recursive", "-o", str(out)])
    assert main() == 0
    written = {str(path.relative_to(out)) for path in out.rglob("*.py")}
    assert written == {"__init__.py", "main.py", "plain.py", "data/__init__.py", "data/flows.py", "data/more.py"}
    assert (out / "plain.py").read_text() == "import os\n"
    assert "tpk.DataFromList" in (out / "data/flows.py").read_text()
    assert "tf.compat.v1.placeholder" in (out / "data/more.py").read_text()
    assert "plain.py: nothing to convert" in capsys.readouterr().err


def test_the_command_writes_diffs_and_refuses(tmp_path, monkeypatch, capsys):
    script, out = tmp_path / "train.py", tmp_path / "out.py"
    script.write_text("from tensorpack import ModelSaver\nsaver = ModelSaver(1, 2)\n")
    monkeypatch.setattr(sys, "argv", ["port", str(script), "-o", str(out)])
    assert main() == 0
    assert out.read_text() == "import tpk\nsaver = tpk.ModelSaver(1, 2)\n"
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("train.py: 0 marks, 0 notes\n")
    monkeypatch.setattr(sys, "argv", ["port", str(script), "--diff"])
    assert main() == 0
    assert "+saver = tpk.ModelSaver(1, 2)\n" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["port", str(out)])
    with pytest.raises(SystemExit):
        main()
    assert "already been converted" in capsys.readouterr().err


# Whole scripts


def test_all_scripts_convert_without_a_mark_and_alike_each_time():
    for path in sorted(SCRIPTS.glob("*.py")):
        conversion = convert(path.read_text(), path.name)
        assert conversion.marks == (), path.name
        compile(conversion.code, path.name, "exec")
        imported = re.findall(r"^\s*(?:from|import) (\w+)", conversion.code, re.MULTILINE)
        assert "tensorpack" not in imported, path.name
    assert convert(path.read_text(), path.name) == conversion
    with pytest.raises(ConversionError, match="already been converted"):
        convert(conversion.code)


def test_converted_scripts_do_what_the_runner_has_them_do(tmp_path):
    runs = [f"{SCRIPTS}{os.sep}{run}" for run in RUNS]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    tool = Path(__file__).parent / "run_scripts.py"
    processes = {}
    for kind in ("runner", "converted"):
        (tmp_path / kind).mkdir()
        with (tmp_path / kind / "output").open("w") as output:
            processes[kind] = subprocess.Popen(
                [sys.executable, str(tool), kind, *runs],
                cwd=tmp_path / kind,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
    try:
        for kind, process in processes.items():
            assert process.wait(1200) == 0, (tmp_path / kind / "output").read_text()[-3000:]
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    theirs, ours = tmp_path / "runner", tmp_path / "converted"
    compared = 0
    for stats in theirs.glob("train_log/**/stats.json"):
        converted = ours / stats.relative_to(theirs)
        # A trainer that is kept still writes stats.json.
        rows = _rows(converted if converted.exists() else converted.with_suffix(".jsonl"))
        for row in json.loads(stats.read_text()):
            # Not reported by tpk's queue; see `InputMonitor`.
            row.pop("QueueInput/queue_size", None)
            own = rows[row["global_step"]]
            assert {name: own.get(name) for name in row} == pytest.approx(row, rel=1e-4, abs=1e-6), stats
            compared += len(row)
    assert compared > 50
    for file in theirs.glob("*.npz"):
        with np.load(file) as before, np.load(ours / file.name) as after:
            assert set(before) == set(after)
            for name in before:
                if before[name].dtype.kind == "f":
                    np.testing.assert_allclose(after[name], before[name], rtol=1e-4, atol=1e-6)
                else:
                    np.testing.assert_array_equal(after[name], before[name])
    for index in theirs.glob("train_log/**/model-*.index"):
        path = str(index.relative_to(theirs)).removesuffix(".index")
        assert tf.train.list_variables(str(ours / path)) == tf.train.list_variables(str(theirs / path)), path


def _rows(path):
    rows, text = {}, path.read_text()
    for row in json.loads(text) if path.suffix == ".json" else map(json.loads, text.splitlines()):
        rows.setdefault(row["global_step"], {}).update(row)
    return rows
