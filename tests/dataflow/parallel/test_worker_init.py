"""`worker_init`: what a worker process calls before anything of the main script is unpickled."""

from __future__ import annotations

import sys

import pytest

from tpk.dataflow import DataFromList, MapData, MultiProcessMapData, MultiProcessRunner
from tpk.errors import ConfigError

MODULE = """
import os, sys

calls = []

def begin():
    # What the flow is made of is unpickled later, and imports this.
    calls.append("module_of_the_flow" in sys.modules)

def fail():
    raise RuntimeError("no licence")

number = 3
"""


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    (tmp_path / "begins_workers.py").write_text(MODULE)
    (tmp_path / "module_of_the_flow.py").write_text(
        "import begins_workers\ndef tell(datapoint):\n    return [*datapoint, *begins_workers.calls]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("begins_workers", "module_of_the_flow"):
        sys.modules.pop(name, None)


def tell():
    import module_of_the_flow

    return module_of_the_flow.tell


def runner(**options):
    return MultiProcessRunner(MapData(DataFromList([[1], [2]], shuffle=False), tell()), 2, **options)


def mapped(**options):
    return MultiProcessMapData(DataFromList([[1], [2]], shuffle=False), 2, tell(), **options)


@pytest.mark.parametrize("make", [runner, mapped])
def test_each_worker_calls_it_once_before_the_flow_is_unpickled(make):
    flow = make(worker_init="begins_workers:begin")
    try:
        for _ in range(2):
            assert list(flow) == [[1, False], [2, False]]
    finally:
        flow.close()
    flow = make()
    try:
        assert list(flow) == [[1], [2]]
    finally:
        flow.close()


@pytest.mark.parametrize("make", [runner, mapped])
def test_a_variable_names_one_for_all_flows_which_comes_first(make, monkeypatch):
    monkeypatch.setenv("TPK_WORKER_INIT", "begins_workers:begin")
    flow = make()
    try:
        assert list(flow) == [[1, False], [2, False]]
    finally:
        flow.close()
    flow = make(worker_init="begins_workers:fail")
    with pytest.raises(RuntimeError, match="no licence"):
        list(flow)
    flow.close()


@pytest.mark.parametrize("make", [runner, mapped])
@pytest.mark.parametrize(
    ("worker_init", "kind", "message"),
    [
        ("begins_workers:fail", RuntimeError, "no licence"),
        ("begins_workers:number", TypeError, "not callable"),
        (
            "begins_workers:nothing",
            ConfigError,
            r"worker_init='begins_workers:nothing' cannot be imported.*no attribute",
        ),
        (
            "no_such_module:begin",
            ConfigError,
            r"cannot be imported .*No module named 'no_such_module'.*module:function",
        ),
    ],
)
def test_one_that_fails_is_the_error_of_the_iteration(make, worker_init, kind, message):
    flow = make(worker_init=worker_init)
    with pytest.raises(kind, match=message) as caught:
        list(flow)
    if kind is not ConfigError:
        assert caught.value.__notes__ == [f"raised by worker_init={worker_init!r} at the start of a worker process"]
    flow.close()


@pytest.mark.parametrize("worker_init", [print, "begin", "begins_workers.begin", "begins workers:begin", ""])
@pytest.mark.parametrize("make", [runner, mapped])
def test_what_names_no_function_is_refused_at_once(make, worker_init):
    with pytest.raises(
        ConfigError, match=r"worker_init=.*expected the name of a function without arguments, \"module:function\""
    ):
        make(worker_init=worker_init)
