"""What the processes of a training agree upon; the processes are threads here, and the trainers are real."""

from __future__ import annotations

import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf
from processes_as_threads import PATIENCE, ThreadStrategy, run_in_threads

import tpk
from tpk.checkpoint import newest_complete

X = np.random.default_rng(0).normal(size=[24, 4, 3]).astype(np.float32)
Y = X @ np.float32([[1], [2], [3]])
BATCHES = list(zip(X, Y, strict=True))


class Linear(tpk.ModelDesc):
    def __init__(self, make=lambda: tf.compat.v1.train.MomentumOptimizer(0.05, 0.9)):
        self._make = make

    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]

    def build_graph(self, x, y):
        w = tf.compat.v1.get_variable("w", [3, 1])
        b = tf.compat.v1.get_variable("b", [1], initializer=tf.compat.v1.zeros_initializer())
        return tf.reduce_mean((x @ w + b - y) ** 2, name="cost")

    def optimizer(self):
        return self._make()


class Recorder(tpk.Callback):
    """Keeps the variables that a process has at its end, and how far it came."""

    chief_only = False

    def after_train(self, trainer):
        self.values = trainer.sess.run({variable.name: variable for variable in tf.compat.v1.global_variables()})
        self.steps = trainer.global_step


def train(strategy, callbacks=(), dataflow=BATCHES, model=None, **options):
    recorder = Recorder()
    config = tpk.TrainConfig(
        model=model or Linear(),
        data=tpk.FeedInput(dataflow, infinite=options.pop("infinite", True)),
        callbacks=[*callbacks, recorder],
        extra_callbacks=[],
        **{"monitors": [], "seed": 5, "max_epoch": 2, "steps_per_epoch": 10, **options},
    )
    trainer = tpk.SingleCostTrainer(strategy=strategy)
    tpk.launch_train_with_config(config, trainer)
    return recorder


def train_two(
    tmp_path,
    callbacks=lambda rank: (),
    strategy_options=lambda rank: {},
    options=lambda rank: {},
    patience=PATIENCE,
    **common,
):
    def target(meeting, rank):
        strategy = ThreadStrategy(meeting, rank, **{"devices": ["/cpu:0"], **strategy_options(rank)})
        return train(strategy, callbacks(rank), **{"run_dir": tmp_path / "run", **common, **options(rank)})

    return run_in_threads(2, target, patience)


def assert_same(values, expected, **tolerance):
    assert values.keys() == expected.keys()
    for name in expected:
        if tolerance:
            np.testing.assert_allclose(values[name], expected[name], err_msg=name, **tolerance)
        else:
            np.testing.assert_array_equal(values[name], expected[name], err_msg=name)


@pytest.mark.parametrize("devices", [["/cpu:0"], ["/cpu:0", "/cpu:1"]])
def test_two_processes_equal_one_on_the_concatenated_batches(tmp_path, devices):
    first, second = train_two(tmp_path, strategy_options=lambda rank: {"devices": devices})
    size = 2 * len(devices)
    joined = [
        [np.concatenate([batch[part] for batch in BATCHES[start : start + size]]) for part in (0, 1)]
        for start in range(0, len(BATCHES), size)
    ]
    alone = train("single", dataflow=joined, run_dir=tmp_path / "alone")
    assert_same(second.values, first.values)
    assert_same(first.values, alone.values, rtol=1e-5, atol=1e-6)


def test_an_epoch_is_as_long_as_the_shortest_share(tmp_path):
    first, second = train_two(tmp_path, dataflow=BATCHES[:15], steps_per_epoch=None)
    assert first.steps == second.steps == 2 * 7


def test_data_that_is_shuffled_without_a_seed_is_shared_all_the_same(tmp_path):
    class Taken(tpk.Callback):
        chief_only = False

        def setup_graph(self, trainer):
            self.taken = []
            self._input = trainer.inputs[0]

        def before_run(self, run_context):
            return self._input

        def after_run(self, run_context, run_values):
            self.taken.append(float(run_values.results[0, 0]))

    taken = [Taken(), Taken()]
    flow = [tpk.DataFromList(BATCHES, shuffle=True) for _ in range(2)]
    train_two(
        tmp_path,
        callbacks=lambda rank: [taken[rank]],
        options=lambda rank: {"dataflow": flow[rank]},
        seed=None,
        max_epoch=1,
        steps_per_epoch=12,
    )
    assert sorted(taken[0].taken + taken[1].taken) == sorted(float(x[0, 0]) for x in X)


def test_only_the_chief_writes(tmp_path):
    first, second = train_two(tmp_path, callbacks=lambda rank: [tpk.ModelSaver()], monitors=["JSONWriter"])
    assert isinstance(first, Recorder), first
    assert isinstance(second, Recorder), second
    names = {path.name.split("-")[0].split(".")[0] for path in (tmp_path / "run").iterdir()}
    assert {"model", "state", "checkpoint", "config"} <= names
    assert newest_complete(tmp_path / "run").step == 20


class StopAt(tpk.Callback):
    """Asks for the end at a step, in one way or another."""

    chief_only = False

    def __init__(self, step, how):
        self._step, self._how = step, how

    def trigger_step(self, trainer):
        if trainer.global_step == self._step:
            self._how(trainer)


@pytest.mark.parametrize("asking", [0, 1])
def test_a_stop_that_one_process_is_asked_for_stops_all_in_the_same_step(tmp_path, asking):
    stop = StopAt(3, lambda trainer: trainer.request_stop("enough"))
    first, second = train_two(tmp_path, callbacks=lambda rank: [stop] if rank == asking else [StopAt(-1, None)])
    assert first.steps == second.steps
    assert 3 <= first.steps < 20


def test_a_signal_to_one_process_ends_all_with_a_checkpoint(tmp_path):
    def signalled(trainer):
        trainer.loop.stop.set_by_signal(signal.SIGTERM)

    outcomes = train_two(
        tmp_path,
        callbacks=lambda rank: [StopAt(3 if rank == 1 else -1, signalled), *([tpk.ModelSaver()] * (rank == 0))],
    )
    assert [type(outcome) for outcome in outcomes] == [tpk.Preempted, tpk.Preempted]
    assert newest_complete(tmp_path / "run").step >= 3


def test_a_signal_and_another_stop_in_one_step_end_all_alike(tmp_path):
    def signalled(trainer):
        trainer.loop.stop.set_by_signal(signal.SIGTERM)

    asked = [StopAt(3, lambda trainer: trainer.request_stop("enough")), StopAt(3, signalled)]
    outcomes = train_two(tmp_path, callbacks=lambda rank: [asked[rank], tpk.ModelSaver()])
    assert [type(outcome) for outcome in outcomes] == [tpk.Preempted, tpk.Preempted]


@pytest.mark.parametrize("chief_only", [True, False])
def test_stop_training_at_the_end_of_an_epoch_stops_all(tmp_path, chief_only):
    class Stop(tpk.Callback):
        def trigger_epoch(self, trainer):
            raise tpk.StopTraining("good enough")

    stop = [Stop(), Stop()]
    for each in stop:
        each.chief_only = chief_only
    first, second = train_two(tmp_path, callbacks=lambda rank: [stop[rank]], max_epoch=5)
    assert (first.steps, second.steps) == (10, 10)


def test_a_process_whose_data_ends_first_says_so(tmp_path):
    outcomes = train_two(
        tmp_path,
        strategy_options=lambda rank: {"shard_data": False},
        options=lambda rank: {"dataflow": BATCHES[: 4 if rank else 20], "infinite": False},
        patience=5,
    )
    assert isinstance(outcomes[0], tf.errors.OpError | tpk.PeerError)
    assert isinstance(outcomes[1], tpk.PeerError)
    assert "rank 1, had ended" in "".join(outcomes[1].__notes__)
    assert "the dataflow ended after 4 datapoints" in "".join(outcomes[1].__notes__)


def test_data_that_ends_in_the_same_step_everywhere_ends_the_training(tmp_path):
    first, second = train_two(tmp_path, options=lambda rank: {"infinite": False}, steps_per_epoch=100)
    assert (first.steps, second.steps) == (12, 12)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps_per_epoch": 11}, "steps_per_epoch is 11, and 10 in rank 0"),
        ({"max_epoch": 3}, "max_epoch is 3, and 2 in rank 0"),
        ({"model": Linear(lambda: tf.compat.v1.train.GradientDescentOptimizer(0.1))}, "'w/Momentum' is missing"),
        ({"seed": 6}, "seed is 6, and 5 in rank 0"),
        ({"seed": None}, "seed is None, and 5 in rank 0"),
        ({"dataflow": BATCHES[:20]}, "the length of the data is 20, and 24 in rank 0"),
        ({"dataflow": tpk.BatchData(BATCHES, 4)}, "batch size is 4, and None in rank 0"),
    ],
)
def test_processes_that_differ_refuse_to_begin(tmp_path, options, words):
    outcomes = train_two(tmp_path, options=lambda rank: options if rank else {})
    for outcome in outcomes:
        assert isinstance(outcome, tpk.MismatchError), outcome
        assert "In rank 1: " in str(outcome)
        assert words in str(outcome)


def test_data_that_is_not_divided_may_differ(tmp_path):
    flows = [BATCHES, tpk.DataFromList(BATCHES[:20], shuffle=True)]
    first, second = train_two(
        tmp_path,
        strategy_options=lambda rank: {"shard_data": False},
        options=lambda rank: {"dataflow": flows[rank], "seed": rank or None},
    )
    assert first.steps == second.steps == 20


def test_a_process_that_does_not_divide_its_data_refuses_to_begin(tmp_path):
    outcomes = train_two(tmp_path, strategy_options=lambda rank: {"shard_data": rank == 0})
    for outcome in outcomes:
        assert isinstance(outcome, tpk.MismatchError), outcome
        assert "shard_data is False, and True in rank 0" in str(outcome)


def test_the_error_of_a_process_that_alone_has_steps_per_epoch_names_it(tmp_path):
    for outcome in train_two(tmp_path, options=lambda rank: {"steps_per_epoch": 10 if rank else None}):
        assert isinstance(outcome, tpk.PeerError), outcome
        assert "rank 0 is at" in str(outcome) or "rank 0 at" in str(outcome)
        assert "steps_per_epoch=None" in str(outcome)


def test_loops_of_different_length_end_before_the_first_step(tmp_path):
    def run(meeting, rank):
        recorder = Recorder()
        trainer = tpk.SingleCostTrainer(strategy=ThreadStrategy(meeting, rank, devices=["/cpu:0"]))
        model = Linear()
        trainer.setup_graph(model.inputs(), tpk.FeedInput(BATCHES), model.build_graph, model.get_optimizer)
        trainer.setup_callbacks([recorder])
        trainer.initialize()
        with pytest.raises(tpk.PeerError, match="steps_per_epoch=11") as raised:
            trainer.main_loop(10 + rank, max_epoch=1)
        assert "steps_per_epoch=10" in str(raised.value)
        return recorder.steps

    assert run_in_threads(2, run) == [0, 0]


def test_processes_with_other_callbacks_refuse_to_begin(tmp_path):
    outcomes = train_two(tmp_path, callbacks=lambda rank: [StopAt(-1, None)] * rank)
    assert all(isinstance(outcome, tpk.MismatchError) for outcome in outcomes), outcomes
    assert "StopAt" in str(outcomes[0])


class StopAfterEpoch(tpk.Callback):
    """Ends a training early; which a run that goes on does not know of."""

    chief_only = False

    def __init__(self, epoch):
        self._epoch = epoch

    def trigger_epoch(self, trainer):
        if trainer.epoch_num == self._epoch:
            trainer.request_stop("interrupted")


def resumable(tmp_path, name, stop_after, flow_seed=1, size=2, resume="auto"):
    flows = [tpk.DataFromList(BATCHES, shuffle=True, seed=flow_seed) for _ in range(size)]

    def target(meeting, rank):
        strategy = ThreadStrategy(meeting, rank, devices=["/cpu:0"]) if size > 1 else "single"
        savers = [tpk.ModelSaver()] if rank == 0 else []
        callbacks = [*savers, StopAfterEpoch(stop_after)]
        return train(
            strategy, callbacks, flows[rank], steps_per_epoch=7, max_epoch=4, run_dir=tmp_path / name, resume=resume
        )

    return run_in_threads(size, target)


def test_a_resumed_training_of_two_processes_is_the_same_to_the_bit(tmp_path):
    never_stopped = resumable(tmp_path, "whole", stop_after=-1)
    resumable(tmp_path, "parts", stop_after=1)
    parts = resumable(tmp_path, "parts", stop_after=-1, resume="must")
    for rank in range(2):
        assert parts[rank].steps == 28
        assert_same(parts[rank].values, never_stopped[rank].values)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_processes_goes_on_with_the_variables_and_the_progress(tmp_path, caplog, before, after):
    stopped = resumable(tmp_path, "run", stop_after=1, size=before)
    resumed = resumable(tmp_path, "run", stop_after=2, size=after, resume="must")
    assert [each.steps for each in resumed] == [14] * after
    assert f"of {before} processes, and now there are {after}" in caplog.text
    assert not np.array_equal(stopped[0].values["w:0"], resumed[0].values["w:0"])


def test_a_checkpoint_that_must_be_there_and_is_not_is_an_error_of_all(tmp_path):
    (tmp_path / "run").mkdir()
    outcomes = train_two(tmp_path, resume="must")
    assert all(isinstance(outcome, tpk.CheckpointError) for outcome in outcomes), outcomes


def test_session_init_of_the_chief_is_that_of_all(tmp_path):
    def init(rank):
        return {"session_init": {"w": np.float32([[7], [8], [9]])} if rank == 0 else None}

    first, second = train_two(tmp_path, options=init, max_epoch=0)
    np.testing.assert_array_equal(first.values["w:0"], [[7], [8], [9]])
    np.testing.assert_array_equal(second.values["w:0"], [[7], [8], [9]])


def test_the_datapoints_that_a_guard_names_are_those_of_the_share_of_its_process(tmp_path):
    x = X.copy()
    x[7, 0, 0] = np.inf
    dataflow = list(zip(x, Y, strict=True))
    _, error = train_two(tmp_path, callbacks=lambda rank: [tpk.NanGuard()], dataflow=dataflow)
    assert isinstance(error, tpk.errors.NonFiniteError)
    assert ", with datapoint 3 of FeedInput in rank 1. The last" in str(error)


def test_a_run_dir_that_is_removed_ends_the_training_of_all(tmp_path):
    class Remove(tpk.Callback):
        def trigger_step(self, trainer):
            if trainer.global_step == 3:
                shutil.rmtree(trainer.run_dir)

    chief, other = train_two(tmp_path, callbacks=lambda rank: [Remove()])
    assert isinstance(chief, tpk.CheckpointError) and "was removed or moved" in str(chief)
    assert isinstance(other, tpk.errors.PeerError)
