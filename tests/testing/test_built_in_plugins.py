"""Every built-in plugin keeps the rules of its kind. New ones are found; built_in.py makes those that need options."""

from __future__ import annotations

import pytest
from built_in import CALLBACKS, ELSEWHERE, MONITORS, STRATEGIES, TRAINERS, Entry

import tpk
from tpk.plugin.builtins import BUILTINS
from tpk.testing import check_callback, check_monitor, check_strategy, check_trainer

pytestmark = pytest.mark.once


def check(kind, name, entries, check_kind, directory):
    entry = entries.get(name) or Entry(lambda directory: tpk.get_catalog().resolve(kind, name))
    check_kind(lambda: entry.make(directory), **entry.options, skip=list(entry.skip))


@pytest.mark.parametrize("name", [name for name in BUILTINS["callback"] if name not in ELSEWHERE])
def test_callbacks(name, tmp_path):
    check("callback", name, CALLBACKS, check_callback, tmp_path)


@pytest.mark.parametrize("name", BUILTINS["monitor"])
def test_monitors(name, tmp_path):
    check("monitor", name, MONITORS, check_monitor, tmp_path)


@pytest.mark.parametrize("name", [name for name in BUILTINS["strategy"] if name not in ELSEWHERE])
def test_strategies(name, tmp_path):
    check("strategy", name, STRATEGIES, check_strategy, tmp_path)


@pytest.mark.parametrize("name", [name for name in BUILTINS["trainer"] if name not in ELSEWHERE])
def test_trainers(name, tmp_path):
    entry = TRAINERS.get(name, Entry(lambda directory: tpk.make_trainer(name)))
    own = vars(type(entry.make(tmp_path)))
    # What only names a strategy has the loop of the class that it is derived from, which is checked, too.
    skip = () if name in LOOPS or OF_THE_LOOP & own.keys() else ["stops", "fails", "trains-in-phases", "resumes"]
    check_trainer(lambda: entry.make(tmp_path), skip=skip)


LOOPS = ("SingleCostTrainer", "MultiObjectiveTrainer", "AsyncMultiGPUTrainer")
OF_THE_LOOP = {"train", "initialize", "main_loop", "run_step", "stop", "finish", "state_dict", "load_state_dict"}
