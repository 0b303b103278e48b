"""Many steps in one run of each process: what they compute is what they would, each in a run of its own."""

from __future__ import annotations

import collective_trainings as trainings
import pytest

import tpk

pytestmark = pytest.mark.once

STEPS = 20


def train(optimizer, steps_per_run, communication):
    strategy = tpk.use("collective", devices=2, communication=communication)
    values, model = trainings.Values(), trainings.Model(optimizer)
    trainer = tpk.SingleCostTrainer(strategy, steps_per_run=steps_per_run)
    data = tpk.QueueInput(trainings.batches(STEPS * 4))
    trainer.setup_graph(model.get_input_signature(), data, model.build_graph, model.get_optimizer)
    # The default callbacks fetch the cost in the chief, and nothing in the other process.
    trainer.train_with_defaults(callbacks=[values], steps_per_epoch=STEPS, max_epoch=1)
    return values.values, trainer.global_step


@pytest.mark.parametrize(
    ("optimizer", "communication"),
    [("momentum", "ring"), ("momentum", "shared_memory"), ("accumulating momentum", "ring")],
)
def test_variables_are_the_same_bits(launch, optimizer, communication):
    alone = launch(train, args=(optimizer, 1, communication)).returned()
    many = launch(train, args=(optimizer, 8, communication)).returned()
    for (one, step), (other, other_step) in zip(alone, many, strict=True):
        assert step == other_step == STEPS
        assert one.keys() == other.keys()
        for name, value in one.items():
            assert value.tobytes() == other[name].tobytes(), name
