"""Run files as they are read: what they may hold, how they are overridden, and what their errors name."""

from __future__ import annotations

import json

import pytest

import tpk

MINIMAL = """
model = "my_run:Linear"
dataflow = "my_run:data"
"""


def test_a_file_holds_a_config_and_a_trainer(run_file):
    path = run_file(
        """
        model = {use = "my_run:Linear", units = 2, activation = {ref = "my_run:squared"}}
        data = {use = "tpk:QueueInput", flow = {use = "my_run:data", batch = 8}}
        trainer = {use = "replicated", devices = 2}
        callbacks = ["ModelSaver", {use = "EarlyStopping", monitor_stat = "cost", patience = 3}]
        max_epoch = 4
        session_config = {inter_op_parallelism_threads = 1, gpu_options = {allow_growth = true}}
        """
    )
    config, trainer = tpk.read_run_file(path)
    assert trainer == tpk.use("replicated", devices=2)
    assert config.callbacks == [tpk.use("ModelSaver"), tpk.use("EarlyStopping", monitor_stat="cost", patience=3)]
    assert config.data == tpk.use("tpk:QueueInput", flow=tpk.use("my_run:data", batch=8))
    assert config.max_epoch == 4
    assert config.session_config.gpu_options.allow_growth
    model = tpk.get_catalog().make(config.model)
    assert (model.units, model.activation(3)) == (2, 9)
    assert tpk.get_catalog().make(config.data).__class__ is tpk.QueueInput


def test_json_is_read_as_well(run_file):
    content = {"model": "my_run:Linear", "dataflow": {"use": "my_run:data", "batch": 8}, "seed": None, "max_epoch": 2}
    config, trainer = tpk.read_run_file(run_file(json.dumps(content), "run.json"))
    assert (config.max_epoch, config.seed, trainer) == (2, None, tpk.use("SimpleTrainer"))


def test_modules_are_found_beside_the_file_and_where_it_says(run_file, folder, monkeypatch):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "other_flow_of_run_file.py").write_text("def flow():\n    return [[1], [2]]\n")
    path = run_file('model = "my_run:Linear"\ndataflow = "other_flow_of_run_file:flow"\npythonpath = ["elsewhere"]\n')
    monkeypatch.chdir("/")
    config, _ = tpk.read_run_file(path)
    assert tpk.get_catalog().make(config.dataflow) == [[1], [2]]


@pytest.mark.parametrize(
    "override, expected",
    [
        ("max_epoch=3", lambda config, trainer: config.max_epoch == 3),
        ("run_dir=runs/x", lambda config, trainer: config.run_dir == "runs/x"),
        ("run_dir='3'", lambda config, trainer: config.run_dir == "3"),
        ("seed=null", lambda config, trainer: config.seed is None),
        ("deterministic=true", lambda config, trainer: config.deterministic),
        ("trainer=replicated", lambda config, trainer: trainer == tpk.use("replicated")),
        ("trainer.steps_per_run=4", lambda config, trainer: trainer == tpk.use("SimpleTrainer", steps_per_run=4)),
        (
            'trainer={use = "replicated", devices = 2, precision = "bfloat16", xla = true}',
            lambda config, trainer: trainer == tpk.use("replicated", devices=2, precision="bfloat16", xla=True),
        ),
        ("model.units=7", lambda config, trainer: config.model == tpk.use("my_run:Linear", units=7)),
        ("dataflow.batch=2", lambda config, trainer: config.dataflow == tpk.use("my_run:data", batch=2)),
        ("callbacks.ModelSaver.max_to_keep=2", lambda config, trainer: config.callbacks[0].options["max_to_keep"] == 2),
        ("callbacks.2.every_k_steps=9", lambda config, trainer: config.callbacks[2].options["every_k_steps"] == 9),
        (
            "callbacks.PeriodicTrigger.callback.op.ref=my_run:halved",
            lambda config, trainer: config.callbacks[1].options["callback"].options["op"].target == "my_run:halved",
        ),
        ("callbacks=[]", lambda config, trainer: config.callbacks == []),
    ],
)
def test_overrides_reach_every_value(run_file, override, expected):
    path = run_file(
        """
        model = "my_run:Linear"
        dataflow = {use = "my_run:data", batch = 8}
        trainer = "SimpleTrainer"
        seed = 1
        callbacks = [
          "ModelSaver",
          {use = "PeriodicTrigger", callback = {use = "tpk:RunOp", op = {ref = "my_run:squared"}}, every_k_steps = 5},
          {use = "PeriodicCallback", callback = {use = "EpochMeans"}, every_k_steps = 5},
        ]
        """
    )
    assert expected(*tpk.read_run_file(path, [override]))


@pytest.mark.parametrize(
    "text, message",
    [
        ("max_epoch = 1 1", r"run\.toml: it is not valid TOML: .*line 1"),
        (f"max_epoch = {'[' * 5000}", r"run\.toml: it is not valid TOML: .*(recursion|nested)"),
        (
            MINIMAL + "max_epok = 3",
            r"run\.toml: there is no key 'max_epok'\. Nearest: 'max_epoch'\. Known: trainer,",
        ),
        (MINIMAL + "max_epochs = 3", r"there is no key 'max_epochs': write max_epoch"),
        (MINIMAL + "logger = true", r"there is no key 'logger': write extra_monitors"),
        (MINIMAL + "strategy = 'replicated'", r"there is no key 'strategy': write trainer = \"replicated\""),
        (MINIMAL + "max_epoch = 'x'", r"run\.toml: TrainConfig\(max_epoch='x'\)"),
        (MINIMAL + "callbacks = 'ModelSaver'", r"run\.toml: callbacks: expected a list of plugins"),
        (MINIMAL + "callbacks = [3]", r"callbacks\.0: expected a name, or a table with use"),
        (
            MINIMAL + "callbacks = ['ModelSavr']",
            r"run\.toml: callbacks\.0: there is no callback 'ModelSavr'. Nearest",
        ),
        (MINIMAL + "monitors = ['ModelSaver']", r"monitors\.0: there is no monitor 'ModelSaver'. There is a callback"),
        (
            MINIMAL + "callbacks = ['EpochMeans', {use = 'ModelSaver', max_to_kep = 3}]",
            r"callbacks\.1: callback 'ModelSaver' .*no option 'max_to_kep'. Nearest: 'max_to_keep'",
        ),
        (
            MINIMAL + "callbacks = [{use = 'InferenceRunner', input = {use = 'my_run:data', btch = 1}, infs = []}]",
            r"callbacks\.0\.input: object 'my_run:data' .*no option 'btch'. Nearest: 'batch'",
        ),
        (
            MINIMAL + "trainer = 'replicatd'",
            r"run\.toml: trainer: there is no trainer or strategy 'replicatd'\. Nearest: 'replicated",
        ),
        (
            MINIMAL + "trainer = {use = 'replicated', device = 2}",
            r"trainer: strategy 'replicated' .*'device'. Nearest",
        ),
        (MINIMAL + "trainer = {devices = 2}", r"trainer: expected a name, or a table with use"),
        ("dataflow = 'my_run:data'", r"run\.toml: model is missing"),
        ("model = 'my_run:Linear'", r"run\.toml: TrainConfig needs either dataflow"),
        ("model = 'Linear'", r"run\.toml: model: expected module:attr, such as my_model:Model, but it is 'Linear'"),
        ("model = 'my_rum:Linear'", r"run\.toml: model: .*my_rum.*cannot be imported"),
        ("model = 'my_run:Liner'", r"run\.toml: model: .*'my_run' has no attribute 'Liner'"),
        ("model = {use = 'my_run:MODEL', units = 2}", r"model: .*takes no options"),
        (
            "model = {use = 'my_run:Linear', activation = {ref = 'f'}}",
            r"model\.activation: expected \{ref = 'module:attr'\}",
        ),
        ("model = {use = 'my_run:Linear', units = {use = 3}}", r"model\.units\.use: expected a name"),
        (MINIMAL + "session_config = {threads = 1}", r"session_config: .*no field named \"threads\".*ConfigProto"),
        (MINIMAL + "pythonpath = 'src'", r"pythonpath: expected a list of directories"),
        (MINIMAL + "seed = {not_written = 'a joke'}", r"run\.toml: seed could not be written as data: a joke"),
    ],
)
def test_an_error_names_file_key_and_remedy(run_file, text, message):
    with pytest.raises(tpk.ConfigError, match=f"(?s){message}"):
        tpk.read_run_file(run_file(text))


@pytest.mark.parametrize(
    "override, message",
    [
        ("max_epoch", "expected key=value"),
        ("seed=None", r"'seed=None': values are written in TOML, not Python\. Write null\."),
        ("deterministic=True", r"Write true\."),
        ("callbacks=[ModelSaver]", r"'\[ModelSaver\]' is not valid TOML.*quoted for the shell"),
        ("callbacks.ModelSavr.max_to_keep=3", r"there is no 'ModelSavr'\. Nearest: 'ModelSaver'\."),
        ("callbacks.7.max_to_keep=3", r"there is no '7'\."),
        ("callbacks.RunOp.op=3", r"several RunOp, the numbers 1 and 2"),
        (
            "callback.ModelSaver.max_to_keep=3",
            r"run\.toml: 'callback.*there is no 'callback'\. Nearest: 'callbacks'\.",
        ),
        ("max_epoch.x=3", r"max_epoch is 2, which has no x"),
        ("max_epoc=3", r"there is no key 'max_epoc'"),
    ],
)
def test_an_override_that_leads_nowhere_is_named(run_file, override, message):
    run_op = "{use = 'RunOp', op = {ref = 'my_run:squared'}}"
    path = run_file(MINIMAL + f"max_epoch = 2\ncallbacks = ['ModelSaver', {run_op}, {run_op}]")
    with pytest.raises(tpk.ConfigError, match=f"(?s){message}"):
        tpk.read_run_file(path, [override])


def test_a_file_that_is_not_there_or_of_another_kind_is_named(run_file, folder):
    with pytest.raises(tpk.ConfigError, match=r"'nothing\.toml' cannot be read"):
        tpk.read_run_file("nothing.toml")
    with pytest.raises(tpk.ConfigError, match=r"expected a file called \*\.toml or \*\.json"):
        tpk.read_run_file(run_file("", "run.yaml"))
    with pytest.raises(tpk.ConfigError, match="expected a mapping"):
        tpk.read_run_file(run_file("[1]", "run.json"))
    with pytest.raises(tpk.ConfigError, match=r"is only a record\. To repeat the run, name .*config\.toml"):
        tpk.read_run_file(run_file('{"argv": [], "versions": {}}', "config.json"))


def test_what_an_option_makes_wrong_names_its_place_in_the_file(run_file):
    path = run_file(
        MINIMAL + "callbacks = [{use = 'EarlyStopping', monitor_stat = 'cost', patience = -1}]\nrun_dir = 'run'"
    )
    with pytest.raises(tpk.ConfigError) as caught:
        tpk.launch_train_with_config(*tpk.read_run_file(path))
    assert any(f"of {path}: callbacks.0" in note for note in caught.value.__notes__)


def test_a_script_that_would_train_when_it_is_imported_is_told_so(run_file, folder):
    module = folder / "my_run.py"
    harmless = module.read_text()
    module.write_text(harmless + "tpk.launch_train_with_config(tpk.TrainConfig(model=MODEL, dataflow=data()))\n")
    with pytest.raises(tpk.ConfigError, match=r"train while it is imported, because .*run\.toml names.*__main__"):
        tpk.read_run_file(run_file(MINIMAL))
    assert not (folder / "runs").exists()
    # Another one may begin.
    module.write_text(harmless)
    tpk.launch_train_with_config(*tpk.read_run_file(run_file(MINIMAL + "max_epoch = 0\nmonitors = []\nrun_dir = 'x'")))
    assert (folder / "x" / "config.toml").is_file()
