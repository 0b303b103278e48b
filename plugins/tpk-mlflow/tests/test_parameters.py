from __future__ import annotations

import time

from tpk_mlflow.parameters import as_parameters, defaults_of, source_tags


def plugin(name, /, **options):
    return {"name": name, "options": options}


def test_settings_are_named_by_plugin_not_by_position():
    config = {
        "seed": None,
        "strategy": plugin("Replicated", devices=2),
        "callbacks": [
            plugin("MinSaver", monitor_stat="a"),
            plugin("PeriodicTrigger", triggerable=plugin("ModelSaver", max_to_keep=3)),
            plugin("MinSaver", monitor_stat="b"),
        ],
        "devices": ["/gpu:0", "/gpu:1"],
        "versions": {"tpk": "1.0"},
        "argv": ["train.py"],
        "git": {"commit": "abc", "is_dirty": True},
    }
    assert as_parameters(config, {}) == {
        "strategy": "Replicated",
        "strategy.devices": "2",
        "callbacks": "MinSaver, PeriodicTrigger, MinSaver",
        "callbacks.MinSaver.monitor_stat": "a",
        "callbacks.MinSaver.2.monitor_stat": "b",
        "callbacks.PeriodicTrigger.triggerable": "ModelSaver",
        "callbacks.PeriodicTrigger.triggerable.max_to_keep": "3",
        "devices": '["/gpu:0", "/gpu:1"]',
    }


class Saver:
    def __init__(self, name, keep=3, clock=time.time):
        pass


def test_options_with_default_values_are_omitted():
    config = {"callbacks": [plugin("Saver", name="a", keep=3, clock="time.time"), plugin("Saver", name="b", keep=4)]}
    assert as_parameters(config, defaults_of([Saver("a")])) == {
        "callbacks": "Saver, Saver",
        "callbacks.Saver.name": "a",
        "callbacks.Saver.2.name": "b",
        "callbacks.Saver.2.keep": "4",
    }


def test_the_commit_is_a_tag_that_mlflow_knows():
    config = {
        "argv": ["train.py", "--lr", "1"],
        "git": {"commit": "abc", "is_dirty": True},
        "versions": {"tensorflow": "2.21.0"},
    }
    assert source_tags(config) == {
        "version.tensorflow": "2.21.0",
        "tpk.argv": "train.py --lr 1",
        "mlflow.source.git.commit": "abc",
        "mlflow.source.git.dirty": "True",
    }
    assert source_tags({"argv": ["train.py"]}) == {"tpk.argv": "train.py"}
