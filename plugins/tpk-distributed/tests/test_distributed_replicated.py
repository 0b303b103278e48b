"""Workers and parameter servers that train in step: real processes against one process."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from distributed_trainings import STEPS, STRATEGIES, Embedding, Model, batches, concatenated, train, v1

import tpk


def train_in_step(data, devices=1, average=True, **options):
    return train(
        STRATEGIES["replicated"]([f"/cpu:{index}" for index in range(devices)], average=average),
        data,
        **options,
    )


def alone(data, count, **options):
    """What one process with one device makes of the same data."""
    kept = {}

    class Keep(tpk.Callback):
        def after_train(self, trainer):
            kept.update({each.op.name: trainer.sess.run(each) for each in v1.global_variables()})

    train("single", concatenated(data, count), callbacks=[Keep()], **options)
    return kept


def launched(launch, function, workers=2, servers=1, **options):
    """Run `function` in each process; return what workers returned."""
    running = launch(function, workers=workers, servers=servers, **options)
    returned = running.returned()
    statuses = [server.wait().status for server in running.servers]
    assert statuses == [0] * servers, "\n".join(server.report() for server in running.servers)
    return returned


def assert_close(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        # Sums of float32 in another order.
        np.testing.assert_allclose(ours[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


def assert_copies_are_identical(returned, devices):
    """All global variables are one; each copy in each worker has their bits."""
    saved = returned[0]["saved"]
    for of_worker in returned:
        for name in of_worker["trained"]:
            for index in range(devices):
                copy = of_worker["local"][f"tower{index}/{name}"]
                assert copy.tobytes() == saved[name].tobytes() == of_worker["saved"][name].tobytes(), name


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "accumulated", "scaled"])
def test_two_workers_with_two_devices_equal_one_on_the_concatenation(launch, optimizer):
    data = batches(STEPS * 4)

    def run():
        return train_in_step(data, devices=2, model=Model(optimizer))

    returned = launched(launch, run, servers=2)
    expected = alone(data, 4, model=Model(optimizer))
    expected.pop("largest")
    for of_worker in returned:
        own = {name: value for name, value in of_worker["saved"].items() if name != "largest"}
        assert_close(own, expected)
    assert_copies_are_identical(returned, devices=2)
    assert {device for name, device in returned[0]["devices"].items() if name in returned[0]["trained"]} == {
        "/job:ps/replica:0/task:0/device:CPU:0",
        "/job:ps/replica:0/task:1/device:CPU:0",
    }


def test_sums_are_those_of_all_towers_of_all_workers(launch):
    data = batches(STEPS * 4)

    def run():
        return train_in_step(data, devices=2, average=False, model=Model("slow_sgd"))

    returned = launched(launch, run)
    expected = alone(data, 4, model=Model("sgd"))
    expected.pop("largest")
    assert_close({name: value for name, value in returned[0]["saved"].items() if name != "largest"}, expected)
    assert_copies_are_identical(returned, devices=2)


def test_three_workers_train_alike_each_time(launch):
    data = batches(STEPS * 3)

    def run():
        return train_in_step(data, model=Model("adam"))

    first, second = (launched(launch, run, workers=3) for _ in range(2))
    assert_copies_are_identical(first, devices=1)
    for name, value in first[0]["saved"].items():
        assert value.tobytes() == second[0]["saved"][name].tobytes(), name


def test_sparse_gradients(launch):
    rng = np.random.default_rng(0)
    data = [[rng.integers(0, 10, 4).astype(np.int32)] for _ in range(STEPS * 2)]

    def run():
        return train_in_step(data, model=Embedding())

    returned = launched(launch, run)
    assert_close(returned[0]["saved"], alone(data, 2, model=Embedding()))
    assert_copies_are_identical(returned, devices=1)


def test_each_worker_counts_its_own_steps(launch):
    data = batches(10)

    def run():
        return train_in_step(data, steps=5)

    for of_worker in launched(launch, run):
        assert (of_worker["steps"], int(of_worker["saved"]["global_step"])) == (5, 5)


def test_untrained_variables_are_those_of_the_chief(launch):
    data = [[np.full([2, 5], value, np.float32), np.zeros([2, 2], np.float32)] for value in (1, 2, 3, 4)]

    def run():
        return train_in_step(data, devices=2, steps=1)

    first, second = launched(launch, run)
    # The chief has had 1 and 3, the other one 2 and 4.
    assert (first["saved"]["largest"], first["local"]["tower1/largest"]) == (1, 1)
    assert (second["saved"]["largest"], second["local"]["tower1/largest"]) == (1, 1)


def test_checkpoints_are_those_of_any_other_strategy(launch, tmp_path):
    data = batches(STEPS)
    train("single", data, steps=10, model=Model("adam"), callbacks=["ModelSaver"], run_dir=tmp_path / "one")

    def run():
        return train_in_step(
            data, steps=5, model=Model("adam"), callbacks=["ModelSaver"],
            session_init=tpk.SaverRestore(tmp_path / "one"), run_dir=tmp_path / "many",
        )  # fmt: skip

    launched(launch, run)
    one, many = (tf.train.load_checkpoint(str(tmp_path / name)) for name in ("one", "many"))
    assert set(one.get_variable_to_shape_map()) == set(many.get_variable_to_shape_map())
    expected = alone(data, 2, steps=5, model=Model("adam"), session_init=tpk.SaverRestore(tmp_path / "one"))
    for name in ("dense/kernel", "dense_1/bias", "dense/kernel/Adam"):
        np.testing.assert_allclose(many.get_tensor(name), expected[name], rtol=2e-4, atol=2e-5, err_msg=name)
