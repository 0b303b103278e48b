"""What the package adds to tpk: it comes in by name, and keeps the rules of built-in plugins."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tensorflow as tf
import tpk_distributed

import tpk
from tpk.testing import check_strategy, check_trainer

ALONE = tpk_distributed.Cluster(workers=["localhost:1"])
"""A cluster of one process, which listens nowhere."""


@pytest.mark.once
def test_the_strategy_keeps_the_rules():
    check_strategy(
        lambda: tpk_distributed.CollectiveStrategy(devices=2, cluster=ALONE), num_towers=2, optimizers=["adam"]
    )


@pytest.mark.once
def test_the_trainer_keeps_the_rules():
    # Its loop is that of `SingleCostTrainer`.
    loop = ["stops", "fails", "trains-in-phases", "resumes"]
    check_trainer(lambda: tpk_distributed.CollectiveTrainer(cluster=ALONE), skip=loop)


@pytest.mark.parametrize("name", ["CollectiveTrainer", "collective"])
def test_a_trainer_is_made_by_name(name):
    trainer = tpk.make_trainer(name, devices=2, cluster=ALONE)
    trainer.resolve_plugins()
    assert isinstance(trainer.strategy, tpk_distributed.CollectiveStrategy)
    assert trainer.strategy.num_replicas == 2


def test_an_option_that_tensorpack_spells_otherwise_is_explained():
    with pytest.raises(TypeError, match="use_nccl=: write communication='nccl'"):
        tpk_distributed.CollectiveTrainer(use_nccl=True)


def test_a_dataflow_is_staged_on_gpus(monkeypatch):
    gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in (0, 1)]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus if kind == "GPU" else [])
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", {}.get)
    trainer = tpk.make_trainer("CollectiveTrainer", devices=2, cluster=ALONE)
    default = trainer.default_input([[0.0]])
    source = trainer.strategy.prepare_input(default)
    assert isinstance(source, tpk.StagingInput)
    assert isinstance(source.source, tpk.QueueInput)


def test_the_launcher_and_the_names_do_without_tensorflow():
    code = (
        "import sys; import tpk_distributed; tpk_distributed.Cluster; from tpk.cli.main import main; "
        "assert main(['launch', '--help']) == 0; assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, stdout=subprocess.DEVNULL)
