"""A run that was killed and resumed, against one that was never killed: variables and files are the same."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import random
import signal

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import tpk
from tpk.checkpoint.files import newest_complete
from tpk.dataflow import BatchData, DataFromList

v1 = tf.compat.v1

STEPS, EPOCHS = 5, 3
TIMED = ("time", "steps_per_second", "examples_per_second")
"""What is another number each time."""


class Killed(BaseException):
    """Stands for the end of the process."""


class Kill(tpk.Callback):
    """Breaks the training off in a hook, at a global step."""

    chief_only = False

    def __init__(self, hook, step):
        self.hook, self.step = hook, step

    def hook_implementations(self):
        def kill():
            if self.global_step == self.step:
                raise Killed

        return {self.hook: kill}


class Network(tpk.ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 4], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y")]

    def build_graph(self, x, y):
        training = tpk.get_current_tower_context().is_training
        hidden = tpk.layers.dense(x, 8, activation=tf.nn.relu, name="hidden")
        hidden = tpk.layers.batch_normalization(hidden, training=training, name="norm")
        prediction = tpk.layers.dense(hidden, 1, name="out")[:, 0]
        cost = tf.reduce_mean((prediction - y) ** 2, name="cost")
        tpk.add_moving_summary(cost)
        return cost

    def optimizer(self):
        rate = v1.get_variable("learning_rate", initializer=0.05, trainable=False)
        momentum = v1.get_variable("momentum", initializer=0.9, trainable=False)
        return tpk.MovingAverageOptimizer(v1.train.MomentumOptimizer(rate, momentum))


class Noise(tpk.Callback):
    """Reports numbers of the global generators, and the values that variables have, in every other step."""

    def before_train(self, trainer):
        trainer.monitors.put_scalar("before", 1)

    def before_epoch(self, trainer):
        trainer.monitors.put_scalar("begun", trainer.epoch_num)

    def trigger_step(self, trainer):
        if trainer.global_step % 2:
            trainer.monitors.put_scalar("python", random.random())
            trainer.monitors.put_scalar("numpy", np.random.normal())

    def trigger_epoch(self, trainer):
        weights = trainer.sess.run(v1.trainable_variables()[0])
        trainer.monitors.put_scalar("norm", np.linalg.norm(weights))
        trainer.monitors.put_scalar("validation", 1 / (1 + abs(trainer.epoch_num - 2)))


def batches():
    rng = np.random.default_rng(0)
    rows = [(row, np.float32(row.sum())) for row in rng.normal(size=(70, 4)).astype(np.float32)]
    return BatchData(DataFromList(rows, shuffle=True), 4)


def callbacks(**saver):
    return [
        tpk.ModelSaver(**saver),
        Noise(),
        tpk.ScheduledHyperParamSetter("learning_rate", [(0, 0.05), (2, 0.02)]),
        tpk.HyperParamSetterWithFunc("momentum", lambda epoch, value: value * 0.9),
        tpk.SimpleMovingAverage(["cost"], 3),
    ]


def run(
    run_dir, *extra, make_input=tpk.FeedInput, strategy=lambda: "single", callbacks=callbacks, saver=None, **options
):
    random.seed(3)
    np.random.seed(4)
    values = Values()
    config = tpk.TrainConfig(
        model=Network(),
        data=make_input(batches()),
        callbacks=[*extra, *callbacks(**(saver or {})), values],
        run_dir=run_dir,
        **{
            "resume": "auto",
            "seed": 11,
            "steps_per_epoch": STEPS,
            "max_epoch": EPOCHS,
            "monitors": ["JSONWriter", "CSVWriter", "TFEventWriter"],
            **options,
        },
    )
    tpk.launch_train_with_config(config, strategy())
    return values.values


class Values(tpk.Callback):
    def after_train(self, trainer):
        variables = v1.global_variables()
        self.values = dict(zip([each.op.name for each in variables], trainer.sess.run(variables), strict=True))


def stats(run_dir):
    lines = [json.loads(line) for line in (run_dir / "stats.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMED} for line in lines]


def table(run_dir):
    rows = [line.split(",") for line in (run_dir / "stats.csv").read_text().splitlines()]
    kept = [index for index, name in enumerate(rows[0]) if name not in TIMED]
    return [[row[index] for index in kept] for row in rows]


def events(run_dir):
    """All values in the event files, in order; and how many graphs there are."""
    values, graphs = [], 0
    for path in sorted(run_dir.glob("events.out.tfevents.*"), key=lambda path: path.name.split(".")[-2].zfill(6)):
        for event in EventFileLoader(str(path)).Load():
            graphs += event.HasField("graph_def")
            summaries = [value for value in event.summary.value if value.tag not in TIMED]
            values += [(event.step, value.tag, value.tensor.float_val[:]) for value in summaries]
    return values, graphs


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


def assert_same_files(first, second):
    assert stats(first) == stats(second)
    assert table(first) == table(second)
    assert events(first) == events(second)


KILLS = [("trigger_step", 8), ("trigger_epoch", 10), ("before_run", 10), ("after_train", 15)]
SAVERS = {
    "epochs": {},
    "steps": {"when": tpk.Every(steps=3), "max_to_keep": 2},
    "thread": {"when": tpk.Every(steps=3), "asynchronous": True},
}
WAYS = {
    "single feed": {},
    "single queue": {"make_input": lambda flow: tpk.QueueInput(flow, queue_size=4)},
    "replicated feed": {"strategy": lambda: tpk.use("replicated", devices=2)},
    "replicated queue": {"make_input": tpk.QueueInput, "strategy": lambda: tpk.use("replicated", devices=2)},
    "replicated, synchronized": {"strategy": lambda: tpk.use("replicated", devices=2, sync_variables="mean")},
    "together": {"strategy": lambda: tpk.use("parameter_server", devices=2)},
}


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    """A function that returns the final variables and the directory of a run that was never killed."""
    known = {}

    def run_once(way, saver):
        if (way, saver) not in known:
            run_dir = tmp_path_factory.mktemp("whole")
            known[way, saver] = run(run_dir, saver=SAVERS[saver], **WAYS[way]), run_dir
        return known[way, saver]

    return run_once


def kill_and_resume(run_dir, kill, saver, way="single feed", **options):
    with pytest.raises(Killed):
        run(run_dir, Kill(*kill), saver=SAVERS[saver], **WAYS[way])
    return run(run_dir, saver=SAVERS[saver], **WAYS[way], **options)


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_killed_and_resumed_is_never_killed(tmp_path, never_killed, kill, saver):
    values, run_dir = never_killed("single feed", saver)
    assert_same(values, kill_and_resume(tmp_path, kill, saver, resume="must"))
    assert_same_files(run_dir, tmp_path)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "single feed"])
def test_with_whatever_input_and_strategy(tmp_path, never_killed, way):
    values, run_dir = never_killed(way, "steps")
    assert_same(values, kill_and_resume(tmp_path, ("trigger_step", 8), "steps", way, resume="must"))
    assert_same_files(run_dir, tmp_path)


def test_killed_again_and_again(tmp_path, never_killed):
    values, run_dir = never_killed("single feed", "steps")
    for step in (1, 2, 4, 5, 5, 8, 11, 13, 14):
        with pytest.raises(Killed):
            run(tmp_path, Kill("trigger_step", step), saver=SAVERS["steps"])
    assert_same(values, run(tmp_path, saver=SAVERS["steps"], resume="must"))
    assert_same_files(run_dir, tmp_path)
    assert sorted(path.name for path in tmp_path.glob("state-*")) == ["state-12.json", "state-15.json"]


@pytest.mark.parametrize("step", [5, 7, 10])
def test_preempted_and_resumed_is_never_killed(tmp_path, never_killed, step):
    class Terminate(Kill):
        def hook_implementations(self):
            def terminate():
                if self.global_step == self.step:
                    signal.raise_signal(signal.SIGTERM)

            return {"trigger_step": terminate}

    values, run_dir = never_killed("single feed", "steps")
    with pytest.raises(tpk.errors.Preempted):
        run(tmp_path, Terminate("trigger_step", step), saver=SAVERS["steps"])
    assert newest_complete(tmp_path).step == step
    assert_same(values, run(tmp_path, saver=SAVERS["steps"], resume="must"))
    assert_same_files(run_dir, tmp_path)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, never_killed, caplog):
    values, run_dir = never_killed("single feed", "steps")
    with pytest.raises(Killed):
        run(tmp_path, Kill("trigger_step", 8), saver=SAVERS["steps"])
    (data,) = tmp_path.glob("model-6.data-*")
    data.write_bytes(data.read_bytes()[:-1])
    assert_same(values, run(tmp_path, saver=SAVERS["steps"]))
    assert_same_files(run_dir, tmp_path)
    assert str(data) in caplog.text
    assert str(data) in (tmp_path / "log.txt").read_text()


def test_an_attempt_without_checkpoint_leaves_no_traces(tmp_path, never_killed):
    values, run_dir = never_killed("single feed", "epochs")
    assert_same(values, kill_and_resume(tmp_path, ("trigger_step", 4), "epochs"))
    assert_same_files(run_dir, tmp_path)


def test_results_of_a_run_without_checkpoints_are_kept(tmp_path):
    run(tmp_path, max_epoch=1, callbacks=lambda: [])
    results = stats(tmp_path), events(tmp_path)
    run(tmp_path, max_epoch=2, callbacks=lambda: [])
    assert [line["epoch_num"] for line in stats(tmp_path)] == [1, 2]
    (tmp_path / "stats-1.jsonl").rename(tmp_path / "kept-1" / "stats.jsonl")
    assert (stats(tmp_path / "kept-1"), events(tmp_path / "kept-1")) == results


def test_a_run_that_is_complete_has_nothing_left_to_do(tmp_path):
    values = run(tmp_path)
    before = stats(tmp_path)
    assert_same(values, run(tmp_path))
    assert stats(tmp_path) == before
    run(tmp_path, max_epoch=EPOCHS + 1)
    assert [line["epoch_num"] for line in stats(tmp_path)][-1] == EPOCHS + 1


def test_what_hooks_do_before_the_first_step_is_not_done_twice(tmp_path):
    """An op that runs before the training, and a callback that counts epochs from before they begin."""

    class Counts(tpk.Callback):
        seen = ()

        def before_epoch(self, trainer):
            self.seen = (*self.seen, trainer.epoch_num)

        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state):
            self.seen = state["seen"]

    def reset():
        rate = next(variable for variable in v1.global_variables() if variable.op.name == "learning_rate")
        return rate.assign(0.5)

    def some(**saver):
        return [tpk.ModelSaver(when=tpk.Every(steps=3)), tpk.RunOp(reset, run_as_trigger=False), Noise(), counts]

    counts = Counts()
    expected = run(tmp_path / "whole", callbacks=some)
    counts = Counts()
    with pytest.raises(Killed):
        run(tmp_path / "killed", Kill("trigger_step", 8), callbacks=some)
    counts = Counts()
    assert_same(expected, run(tmp_path / "killed", callbacks=some))
    assert counts.seen == (1, 2, 3)
    assert stats(tmp_path / "whole") == stats(tmp_path / "killed")


class Named(tpk.Callback):
    """Keeps a number; it has a key of its own, or none."""

    def __init__(self, number, key=""):
        self.number, self.state_key = number, key

    def before_train(self, trainer):
        pass

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


def test_states_find_their_callbacks_in_another_order_and_what_does_not_match_is_said(tmp_path, caplog):
    run(tmp_path, Named(1, "a"), Named(2, "b"), Named(3), max_epoch=1)
    a, b, c, plain = Named(0, "a"), Named(0, "b"), Named(7, "c"), Named(0)
    run(tmp_path, plain, c, tpk.PeriodicCallback(b, every_k_epochs=2), max_epoch=2)
    assert (a.number, b.number, c.number, plain.number) == (0, 2, 7, 3)
    assert "callbacks without a state in the checkpoint start from scratch: Named(c)" in caplog.text
    assert "the state of callbacks that this run does not have: Named(a)" in caplog.text


def test_a_callback_that_cannot_take_its_state_is_named(tmp_path):
    class Changed(Named):
        def load_state_dict(self, state):
            raise KeyError("colour")

    Changed.__name__ = "Named"
    run(tmp_path, Named(1), max_epoch=1)
    with pytest.raises(tpk.CheckpointError, match=r"callback 'Named' cannot restore its state .*KeyError\('colour'\)"):
        run(tmp_path, Changed(1))


def test_monitors_that_come_and_go_keep_what_they_wrote(tmp_path, caplog):
    run(tmp_path, max_epoch=1)
    run(tmp_path, max_epoch=2, monitors=["TFEventWriter"])
    assert "monitors that this run does not have: CSVWriter(stats.csv), JSONWriter(stats.jsonl)" in caplog.text
    run(tmp_path, max_epoch=3)
    assert {line["epoch_num"] for line in stats(tmp_path)} == {0, 1, 3}


# Other configurations.


def test_another_number_of_towers_goes_on_with_a_warning(tmp_path, caplog):
    before = run(tmp_path, max_epoch=1)
    after = run(tmp_path, max_epoch=1, strategy=WAYS["replicated feed"]["strategy"])
    assert_same(before, after)
    assert "strategy: 'SingleStrategy' → 'ReplicatedStrategy'" in caplog.text
    run(tmp_path, max_epoch=2, strategy=lambda: tpk.use("replicated", devices=3))
    assert "num_replicas: 1 → 3" in caplog.text
    assert stats(tmp_path)[-1]["epoch_num"] == 2


def test_other_steps_per_epoch(tmp_path, caplog):
    with pytest.raises(Killed):
        run(tmp_path, Kill("trigger_step", 5), saver={"when": tpk.Every(steps=4)})
    with pytest.raises(tpk.CheckpointError, match="after step 4 of an epoch of 5 steps, but an epoch now has 3"):
        run(tmp_path, steps_per_epoch=3)
    run(tmp_path, steps_per_epoch=6, max_epoch=1)
    assert "steps_per_epoch: 5 → 6" in caplog.text
    assert stats(tmp_path)[-1]["global_step"] == 6


def test_another_model_is_an_error_and_other_variables_are_said(tmp_path, caplog, monkeypatch):
    run(tmp_path, max_epoch=1)

    def another(self, x, y):
        v1.get_variable("extra", initializer=1.0)
        return build(self, x, y)

    build = Network.build_graph
    with monkeypatch.context() as patch:
        patch.setattr(Network, "build_graph", another)
        message = (
            r"the model has changed: .*model-5 does not have extra\. .* session_init=tpk\.SmartInit\('.*/model-5', "
            r"ignore_mismatch=True, weights_only=True\) restores the variables that are the same\.$"
        )
        with pytest.raises(tpk.CheckpointError, match=message):
            run(tmp_path)

    def narrower(self, x, y):
        return build(self, x[:, :3], y)

    with monkeypatch.context() as patch:
        patch.setattr(Network, "build_graph", narrower)
        message = (
            r"the model has changed: .*model-5 does not have .*hidden/kernel \(of shape \(3, 8\), which was \(4, 8\)\)"
        )
        with pytest.raises(tpk.CheckpointError, match=message):
            run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(
            Network,
            "optimizer",
            lambda self: v1.train.AdamOptimizer(v1.get_variable("rate", initializer=0.1, trainable=False)),
        )
        run(tmp_path, max_epoch=1, callbacks=lambda: [])
    assert "left as initialized: " in caplog.text
    assert "but not in the graph: hidden/bias/ExponentialMovingAverage" in caplog.text


def test_session_init_is_for_the_first_start_only(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    before = run(tmp_path, max_epoch=1, session_init={"learning_rate": 0.05})
    assert_same(before, run(tmp_path, max_epoch=1, session_init={"learning_rate": 7.0}))
    assert "session_init is not applied, because the run is resumed" in caplog.messages


def test_nothing_to_resume_from(tmp_path):
    with pytest.raises(tpk.CheckpointError, match=r"resume='must', but .* has no complete checkpoint"):
        run(tmp_path / "new", resume="must")
    assert not (tmp_path / "new").exists()
    with pytest.raises(tpk.ConfigError, match=r"resume='auto' needs a run_dir"):
        run(None)
    with pytest.raises(tpk.ConfigError, match="TrainConfig: resume must be one of 'auto', 'must', 'never'"):
        run(tmp_path, resume="perhaps")
    with pytest.raises(tpk.ConfigError, match="resume must be one of 'auto', 'must', 'never', not 'perhaps'"):
        tpk.Trainer().train(steps_per_epoch=1, resume="perhaps", run_dir=tmp_path)
    run(tmp_path / "used", max_epoch=1, resume="never")
    with pytest.raises(tpk.ConfigError, match=r"holds a run already .*resume='auto'"):
        run(tmp_path / "used", resume="never")


def test_a_trainer_may_have_a_state_of_its_own(tmp_path):
    class Walk(tpk.Trainer):
        position = 0.0

        def run_step(self):
            self.position += random.gauss(0, 1)

        def state_dict(self):
            return {"position": self.position}

        def load_state_dict(self, state):
            self.position = state["position"]

    def walk(run_dir, *extra):
        random.seed(1)
        trainer = Walk()
        saver = tpk.ModelSaver()
        trainer.train(callbacks=[*extra, saver], steps_per_epoch=4, max_epoch=3, run_dir=run_dir, resume="auto")
        return trainer.position

    class KillInEpoch(tpk.Callback):
        def trigger_step(self, trainer):
            if (trainer.epoch_num, trainer.local_step) == (2, 3):
                raise Killed

    with pytest.raises(Killed):
        walk(tmp_path / "killed", KillInEpoch())
    assert walk(tmp_path / "killed") == walk(tmp_path / "whole")


def test_a_trainer_that_cannot_take_its_state_is_named(tmp_path):
    class Forgetful(tpk.Trainer):
        def run_step(self):
            pass

        def load_state_dict(self, state):
            raise KeyError("position")

    def train():
        Forgetful().train(callbacks=["ModelSaver"], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path, resume="auto")

    train()
    with pytest.raises(tpk.CheckpointError, match=r"Forgetful cannot restore its state .*KeyError\('position'\)"):
        train()


def test_the_progress_goes_on_where_it_was(tmp_path):
    shown = io.StringIO()
    shown.isatty = lambda: True
    with pytest.raises(Killed):
        run(tmp_path, Kill("trigger_step", 4), saver={"when": tpk.Every(steps=3)})
    with contextlib.redirect_stderr(shown):
        run(tmp_path, max_epoch=1, extra_callbacks=[tpk.ProgressBar()])
    assert "3/5" in shown.getvalue()
    assert "5/5" in shown.getvalue()
    assert "2/5" not in shown.getvalue()


def test_the_config_says_how_the_run_went_on(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="tpk")
    run(tmp_path, max_epoch=1)
    run(tmp_path, max_epoch=2)
    assert "config: max_epoch was 1, and is 2 now" in caplog.messages
    assert json.loads((tmp_path / "config.json").read_text())["max_epoch"] == 2


def test_a_refused_resume_leaves_the_records_as_they_are(tmp_path):
    run(tmp_path, max_epoch=1, saver={"when": tpk.Every(steps=STEPS - 1)})
    before = (tmp_path / "stats.jsonl").read_bytes()
    with pytest.raises(tpk.CheckpointError, match="cannot continue"):
        run(tmp_path, max_epoch=2, make_input=lambda flow: tpk.FeedInput(tpk.RepeatedData(flow, 2)))
    assert (tmp_path / "stats.jsonl").read_bytes() == before


def test_a_directory_from_which_tensorflow_could_not_read_is_refused_before_the_training(tmp_path):
    with pytest.raises(tpk.CheckpointError, match=r"a\[1\].* as wildcards. Use another directory"):
        run(tmp_path / "a[1]", max_epoch=1)


def test_another_seed_is_told(tmp_path, caplog):
    run(tmp_path, max_epoch=1, seed=1)
    run(tmp_path, max_epoch=2, seed=2)
    assert "seed: 1 → 2" in caplog.text
