from __future__ import annotations

import pytest
import tensorflow as tf
from evaluations import train

import tpk
from tpk.callbacks.run_tensors import find_in_each_tower
from tpk.errors import ConfigError, TowerError


class Finding(tpk.Callback):
    def __init__(self, find):
        self.find = find

    def setup_graph(self, trainer):
        self.found = self.find(trainer)


@pytest.mark.parametrize("name", ["score", "score:0"])
@pytest.mark.parametrize("strategy", ["single", tpk.use("replicated", devices=2)])
def test_a_tensor_is_found_by_its_name_in_the_model_whatever_the_strategy(strategy, name):
    finding = Finding(lambda trainer: (trainer, tpk.find_tensor(trainer, name), find_in_each_tower(trainer, name)))
    train(finding, strategy=strategy, epochs=1)
    trainer, tensor, tensors = finding.found
    assert tensors == [tower["score"] for tower in trainer.towers.training()]
    assert tensor is tensors[0]


def test_what_is_in_no_tower_is_found_in_the_graph():
    finding = Finding(lambda trainer: (tf.constant(1.0, name="one"), tpk.find_tensor(trainer, "one")))
    train(finding, epochs=1)
    assert finding.found[0] is finding.found[1]
    with pytest.raises(TowerError, match=r"has no tensor 'scroe'\. Nearest: 'score'"):
        train(Finding(lambda trainer: tpk.find_tensor(trainer, "scroe")), epochs=1)


def test_without_towers_the_graph_is_searched(run_steps):
    finding = Finding(lambda trainer: tpk.find_tensor(trainer, "cost"))
    run_steps(finding, 1)
    assert finding.found.name == "cost:0"
    with pytest.raises(ConfigError, match=r"the graph has no tensor 'csot'\. Nearest: 'cost'"):
        run_steps(Finding(lambda trainer: tpk.find_tensor(trainer, "csot")), 1)
