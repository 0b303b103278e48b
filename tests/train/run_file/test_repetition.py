"""What a run leaves behind repeats it, to the bit; and what it could not write, it says."""

from __future__ import annotations

import importlib
import json
import sys

import attrs
import pytest
import tensorflow as tf

import tpk
from tpk.train.run_file.write import run_data, run_file_text

QUIET = {"extra_callbacks": ["EpochMeans"], "monitors": ["JSONWriter"]}
TIMES = {"time", "seconds", "wall_time"}


def statistics(run_dir):
    lines = (run_dir / "stats.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]


def weights(run_dir):
    reader = tf.train.load_checkpoint(str(run_dir))
    return {name: reader.get_tensor(name).tobytes() for name in reader.get_variable_to_shape_map()}


def script_module(folder):
    sys.path.insert(0, str(folder))
    return importlib.import_module("my_run")


def test_a_run_of_a_script_is_repeated_to_the_bit_by_the_file_that_it_leaves(folder):
    script = script_module(folder)
    config = tpk.TrainConfig(
        model=script.Linear(4, activation=script.squared),
        dataflow="my_run:data",
        callbacks=[
            tpk.ModelSaver(max_to_keep=2),
            tpk.ScheduledHyperParamSetter("learning_rate", tpk.LinearSchedule(0.1, 0.01, 2).after_warmup(1, 0.05)),
            tpk.HyperParamSetterWithFunc("learning_rate", script.halved),
            tpk.PeriodicTrigger(tpk.RunOp(script.nothing), every_k_epochs=2),
        ],
        session_config=tf.compat.v1.ConfigProto(inter_op_parallelism_threads=1),
        max_epoch=3,
        seed=5,
        run_dir="first",
        **QUIET,
    )
    tpk.launch_train_with_config(config, tpk.use("replicated", devices=2))
    repeated, trainer = tpk.read_run_file(folder / "first" / "config.toml", ["run_dir=second"])
    assert trainer == tpk.use("replicated", devices=2)
    assert repeated.session_config == config.session_config
    tpk.launch_train_with_config(repeated, trainer)
    assert statistics(folder / "first") == statistics(folder / "second") != []
    assert weights(folder / "first") == weights(folder / "second")


def test_a_run_of_a_file_leaves_one_with_its_overrides_that_goes_on_with_it(run_file, folder):
    path = run_file(
        """
        model = {use = "my_run:Linear", units = 2}
        dataflow = "my_run:data"
        callbacks = ["ModelSaver"]
        extra_callbacks = ["EpochMeans"]
        monitors = ["JSONWriter"]
        max_epoch = 1
        seed = 1
        """
    )
    tpk.launch_train_with_config(*tpk.read_run_file(path, ["run_dir=run", "dataflow.batch=8"]))
    left = folder / "run" / "config.toml"
    go_on = ["run_dir=run", "resume=auto", "max_epoch=2"]
    trainer = tpk.launch_train_with_config(*tpk.read_run_file(left, go_on))
    assert trainer.global_step == 2 * 32 // 8
    assert [row["epoch_num"] for row in statistics(folder / "run")] == [1, 2]
    assert "max_epoch = 2" in left.read_text()


def test_every_value_comes_back_as_it_was(folder):
    script = script_module(folder)
    value = {
        "numbers": [0, -1, 2**70, 1e-300, -0.5, float("inf"), 5e-324],
        "texts": ["", 'a "quoted"\nline', "tab\t\\ \u2028 é 😀", "null", "true"],
        "nothing": [None, [None], {"inner": None}],
        "a.key with = and 'quotes'": {"": [], "empty": {}, "flags": [True, False]},
        "objects": [script.Echo(None), {"function": script.halved, "class": script.Echo}],
    }
    config = tpk.TrainConfig(model=script.MODEL, dataflow=[], callbacks=[script.Echo(value), script.Echo], max_epoch=1)
    path = folder / "run.toml"
    path.write_text(run_file_text(run_data(config, "SimpleTrainer")), encoding="utf-8")
    read, _ = tpk.read_run_file(path, ["callbacks.1.value=3"])
    catalog = tpk.get_catalog()
    first, second = map(catalog.make, read.callbacks)
    echo, importable = first.value["objects"]
    assert first.value == {**value, "objects": [echo, importable]}
    assert (type(echo), echo.value, importable) == (script.Echo, None, value["objects"][1])
    assert second.value == 3
    assert catalog.make(read.model).units == 1


def test_what_cannot_be_written_says_so_and_can_be_given(folder):
    script = script_module(folder)
    config = tpk.TrainConfig(
        model=script.Linear(),
        dataflow=script.data(),
        callbacks=[tpk.HyperParamSetterWithFunc("learning_rate", lambda epoch, rate: rate)],
        max_epoch=1,
        steps_per_epoch=1,
        run_dir="run",
        **QUIET,
    )
    tpk.launch_train_with_config(config)
    left = folder / "run" / "config.toml"
    text = left.read_text()
    assert "dataflow.flow.items, callbacks.0.func" in text
    assert "as in dataflow = 'module:function'" in text
    message = r"config\.toml: dataflow\.flow\.items could not be .*array .*float32.*: dataflow = 'module:function'\."
    with pytest.raises(tpk.ConfigError, match=message):
        tpk.read_run_file(left)
    with pytest.raises(tpk.ConfigError, match=r"callbacks\.0\.func could not be written as data: a lambda"):
        tpk.read_run_file(left, ["dataflow=my_run:data"])
    given = ["dataflow=my_run:data", "callbacks.HyperParamSetterWithFunc.func={ref='my_run:halved'}", "run_dir=again"]
    assert tpk.launch_train_with_config(*tpk.read_run_file(left, given)).global_step == 1


def test_a_trainer_with_callbacks_of_its_own_is_not_written(folder):
    script = script_module(folder)
    trainer = tpk.make_trainer("SimpleTrainer")
    trainer.register_callback("EpochMeans")
    config = tpk.TrainConfig(model=script.MODEL, dataflow="my_run:data", max_epoch=0, run_dir="run", monitors=[])
    tpk.launch_train_with_config(config, trainer)
    with pytest.raises(tpk.ConfigError, match="could not be written as data: a trainer with registered callbacks"):
        tpk.read_run_file(folder / "run" / "config.toml")


def test_named_model_and_data_are_made_anew_for_each_run(folder):
    script = script_module(folder)
    made = []
    script.counted = lambda batch: made.append(batch) or script.data(batch)
    config = tpk.TrainConfig(
        model="my_run:MODEL", dataflow=tpk.use("my_run:counted", batch=16), max_epoch=1, seed=0, **QUIET
    )
    first, second = (tpk.launch_train_with_config(attrs.evolve(config, run_dir=name)) for name in ("a", "b"))
    assert made == [16, 16]
    assert first.history["cost"].tolist() == second.history["cost"].tolist()
    assert config.model == "my_run:MODEL"


@pytest.mark.parametrize("options", [{"model": "Linear"}, {"model": tpk.use("Linear")}, {"dataflow": "train"}])
def test_a_model_is_named_with_its_module(options):
    with pytest.raises(tpk.ConfigError, match=r"expected 'module:attr', such as 'my_model:Model'"):
        tpk.TrainConfig(**{"model": "my_run:Linear", "dataflow": "my_run:data", **options})


def test_what_a_name_leads_to_must_be_a_model(folder):
    sys.path.insert(0, str(folder))
    config = tpk.TrainConfig(model="my_run:data", dataflow="my_run:data", max_epoch=1)
    with pytest.raises(tpk.ConfigError, match=r"expected a tpk\.ModelDesc"):
        tpk.launch_train_with_config(config)
