"""What goes on around the steps of workers: further trainings, objectives, predictors, a worker that is late."""

from __future__ import annotations

import signal

import numpy as np
import pytest
import tensorflow as tf
from distributed_trainings import STRATEGIES, Model, batches, concatenated, train, v1
from tpk_distributed import Cluster

import tpk
from tpk.checkpoint import newest_complete
from tpk.graph.objective import Objective


class Game(tpk.Callback):
    """Two players, each of whom has a cost that depends on what the other one does."""

    chief_only = False
    signature = (tf.TensorSpec([None, 3], tf.float32, "a"),)

    @staticmethod
    def costs(a):
        x = v1.get_variable("first/x", initializer=tf.constant([1.0, -2.0, 0.5]))
        y = v1.get_variable("second/y", initializer=tf.constant([0.5, 1.0, -1.0]))
        f = tf.reduce_mean(tf.reduce_sum((x - a) ** 2, axis=1)) / 2 + 0.5 * tf.reduce_sum(x * y)
        g = tf.reduce_mean(tf.reduce_sum((y + a) ** 2, axis=1)) / 2 - 0.5 * tf.reduce_sum(x * y)
        return {"f": tf.identity(f, "f"), "g": tf.identity(g, "g")}

    def setup_graph(self, trainer):
        self.fetches = [[tower["f"], tower["g"]] for tower in trainer.towers.training()]
        self.fetched = []

    def before_run(self, run_context):
        return self.fetches

    def after_run(self, run_context, run_values):
        self.fetched.append(np.mean(run_values.results, axis=0))

    def after_train(self, trainer):
        self.values = {each.op.name: trainer.sess.run(each) for each in v1.trainable_variables()}


def play(strategy, data, update, every, steps=10):
    trainer, game = tpk.MultiObjectiveTrainer(strategy, update=update), Game()
    objectives = [
        Objective(lambda: v1.train.MomentumOptimizer(0.1, 0.9), name="f", variables="first/", every=every),
        Objective(lambda: v1.train.MomentumOptimizer(0.1, 0.9), name="g", variables="second/"),
    ]
    trainer.setup_graph(game.signature, tpk.FeedInput(data), game.costs, objectives)
    if trainer.train_op is None:
        return None
    trainer.train(callbacks=[game], steps_per_epoch=steps, max_epoch=1)
    return game.values, game.fetched


@pytest.mark.parametrize(("update", "every"), [("in_turn", 1), ("together", 1), ("together", 3)])
def test_several_objectives(launch, update, every):
    rng = np.random.default_rng(0)
    data = [[rng.normal(size=(4, 3)).astype(np.float32)] for _ in range(80)]

    def run():
        return play(STRATEGIES["replicated"](2), data, update, every)

    running = launch(run, servers=1)
    returned = running.returned()
    assert running.servers[0].wait().status == 0
    values, fetched = play("single", concatenated(data, 4), update, every)
    for name, value in values.items():
        for of_worker, _ in returned:
            np.testing.assert_allclose(of_worker[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    # Costs are of before each update, in all towers.
    np.testing.assert_allclose(np.mean([costs for _, costs in returned], axis=0), fetched, rtol=1e-4, atol=1e-6)


def test_the_processes_can_train_again(launch):
    data = batches(20)

    def run():
        strategies = [STRATEGIES["replicated"]() for _ in range(2)]
        return [train(strategy, data, steps=5, model=Model("adam")) for strategy in strategies]

    running = launch(run, servers=1)
    for first, second in running.returned():
        for name, value in first["saved"].items():
            np.testing.assert_array_equal(second["saved"][name], value, err_msg=name)
    assert running.servers[0].wait().status == 0


def with_server(data):
    """As graph-mode users know it: the script starts TensorFlow's server itself."""
    cluster = Cluster.find()
    config = v1.ConfigProto(device_count={"CPU": 2})
    server = v1.train.Server(
        tf.train.ClusterSpec({job: list(addresses) for job, addresses in cluster.jobs.items()}),
        job_name=cluster.job,
        task_index=cluster.index,
        config=config,
    )
    return [train(STRATEGIES["replicated"](2, server), data, steps=5) for _ in range(2)]


def test_a_server_of_the_users_own(launch):
    data = batches(20)
    running = launch(with_server, servers=1, args=(data,))
    returned = running.returned()
    assert running.servers[0].wait().status == 0
    for first, second in returned:
        for name in first["trained"]:
            assert first["saved"][name].tobytes() == second["saved"][name].tobytes(), name
            assert first["saved"][name].tobytes() == first["local"][f"tower1/{name}"].tobytes(), name


class Predict(tpk.Callback):
    """Predicts by variables of this worker that are those of the training."""

    chief_only = False

    def setup_graph(self, trainer):
        self.predictor = trainer.get_predictor(["x", "y"], ["cost"])

    def after_train(self, trainer):
        (self.cost,) = self.predictor(*batches(1, seed=5)[0])


def test_predictors_have_the_variables_of_the_training(launch):
    data = batches(20)

    def run():
        predict = Predict()
        train(STRATEGIES["replicated"](), data, steps=5, callbacks=[predict])
        return getattr(predict, "cost", None)

    running = launch(run, servers=1)
    predict = Predict()
    train("single", concatenated(data, 2), steps=5, callbacks=[predict])
    assert running.returned() == pytest.approx([predict.cost] * 2, rel=1e-4)
    assert running.servers[0].wait().status == 0


class Tell(tpk.Callback):
    chief_only = False

    def trigger_step(self, trainer):
        if trainer.global_step == 3:
            print("in the middle", flush=True)


def endless_and_impatient():
    strategy = STRATEGIES["replicated"](timeouts={"late_warning": 0.5})
    train(strategy, batches(4), steps=10**9, callbacks=[Tell()])


def test_a_worker_that_is_late_is_reported_and_waited_for(launch):
    running = launch(endless_and_impatient, servers=1)
    for worker in running.workers:
        worker.wait_for("in the middle")
    first, second = running.workers
    second.send(signal.SIGSTOP)
    first.wait_for(" s for rank 1")
    second.send(signal.SIGCONT)
    second.send(signal.SIGTERM)
    for process in (first, second, *running.servers):
        status = process.wait().status
        assert status == (0 if process in running.servers else 128 + signal.SIGTERM), process.report()


def configured(run_dir, max_epoch):
    config = tpk.TrainConfig(
        model=Model("adam"),
        data=tpk.QueueInput(batches(20)),
        callbacks=["ModelSaver"],
        steps_per_epoch=5,
        max_epoch=max_epoch,
        run_dir=run_dir,
        resume="auto",
    )
    tpk.launch_train_with_config(config, "distributed_replicated")


def test_one_run_dir_and_another_number_of_workers_goes_on(launch, tmp_path):
    for workers, servers, epochs in ((2, 1, 2), (3, 2, 4)):
        running = launch(configured, workers=workers, servers=servers, args=(tmp_path / "run", epochs))
        running.returned()
        assert [server.wait().status for server in running.servers] == [0] * servers
        assert len((tmp_path / "run" / "stats.jsonl").read_text().splitlines()) == epochs
        assert len(list((tmp_path / "run").glob("events.*"))) == epochs / 2, "one of each start"
        progress = newest_complete(tmp_path / "run").state["progress"]
        assert (progress["epoch_num"], progress["global_step"]) == (epochs, 5 * epochs)
