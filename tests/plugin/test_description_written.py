"""Written forms of objects, from which they can be made again."""

from __future__ import annotations

import enum
import functools
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import attrs
import numpy as np
import pytest

import tpk
from tpk.plugin.creation import Ref
from tpk.plugin.recorded_options import written, written_plugin


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Make the names of this file importable from a module."""
    module = types.ModuleType("written_things")
    for thing in (Greeting, Value, Data, Color, shout, Bare, Positional):
        monkeypatch.setattr(thing, "__module__", module.__name__)
        setattr(module, thing.__name__, thing)
    monkeypatch.setitem(sys.modules, module.__name__, module)


class Greeting(tpk.Callback):
    def __init__(self, text="hi", times=2, **further):
        self.words = [text] * times
        self.further = further


class Positional(tpk.Callback):
    def __init__(self, *words):
        self.words = words


class Bare(tpk.Callback):
    pass


@attrs.frozen
class Value:
    _size: int = 3


@dataclass
class Data:
    size: int = 4


class Sulky:
    @property
    def shape(self):
        raise OSError("no")


class Color(enum.Enum):
    RED = 1


def shout(text):
    return text.upper()


@pytest.mark.parametrize(
    "make, form",
    [
        (lambda: Greeting("ho", loud=True), {"use": "written_things:Greeting", "text": "ho", "loud": True}),
        (Bare, {"use": "written_things:Bare"}),
        (lambda: Value(5), {"use": "written_things:Value", "size": 5}),
        (Data, {"use": "written_things:Data", "size": 4}),
        (lambda: tpk.ModelSaver(max_to_keep=None), {"use": "tpk:ModelSaver", "max_to_keep": None}),
        (lambda: tpk.use("x", func=shout), {"use": "x", "func": {"ref": "written_things:shout"}}),
        (lambda: Ref("a:b"), {"ref": "a:b"}),
        (lambda: shout, {"ref": "written_things:shout"}),
        (lambda: Color.RED, {"ref": "written_things:Color.RED"}),
        (lambda: [(1, 2.5), {"a": None}], [[1, 2.5], {"a": None}]),
        (lambda: Path("a") / "b", "a/b"),
        (lambda: np.float64(0.5), 0.5),
        (
            lambda: tpk.BatchData(tpk.DataFromList([[1]]), 2),
            {"use": "tpk:BatchData", "flow": {"use": "tpk:DataFromList", "items": [[1]]}, "batch_size": 2},
        ),
    ],
)
def test_a_value_that_can_be_made_again_is_written(make, form):
    assert written(make()) == form


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda: lambda: 0, "a lambda"),
        (lambda: local_function(), "defined inside of a function"),
        (lambda: np.zeros([2, 3]), r"an array or a tensor of float64 \(2, 3\)"),
        (lambda: functools.partial(shout), "an object of functools.partial, made in the script"),
        (lambda: object(), "an object of builtins.object"),
        (lambda: list(range(5000)), "a list of 5000 items"),
        (lambda: [[0] * 100] * 100, "more than 1000 values"),
        (lambda: "x" * 5000, "a text of 5000 characters"),
        (lambda: dict.fromkeys(map(str, range(5000))), "a mapping of 5000 keys"),
        (lambda: Sulky(), "an object of Sulky, which says OSError: no"),
        (lambda: {1: 2}, "keys that are not text"),
        (lambda: {"use": 2}, "which have a meaning in the file"),
        (lambda: Greeting(use=3), "Greeting with a key .use."),
        (lambda: Positional("a"), "given arguments that have no names"),
    ],
)
def test_a_value_that_cannot_be_made_again_says_why(make, why):
    form = written(make())
    assert set(form) == {"not_written"}
    assert re.search(why, form["not_written"])


def local_function():
    def local():
        pass

    return local


def test_an_option_that_cannot_be_written_does_not_affect_the_others():
    form = written(Greeting("ho", func=lambda: 0, api_key="12345"))
    assert form == {
        "use": "written_things:Greeting",
        "text": "ho",
        "func": {"not_written": "a lambda"},
        "api_key": {"not_written": "a secret"},
    }


def test_a_list_that_contains_itself_ends():
    endless = []
    endless.append(endless)
    assert "more than" in written(endless)["not_written"]


def test_a_written_plugin_uses_the_name_of_a_builtin():
    assert written_plugin("callback", "ModelSaver") == {"use": "ModelSaver"}
    assert written_plugin("callback", tpk.ModelSaver) == {"use": "ModelSaver"}
    assert written_plugin("callback", tpk.ModelSaver(max_to_keep=1)) == {"use": "ModelSaver", "max_to_keep": 1}
    assert written_plugin("callback", Bare) == {"use": "written_things:Bare"}
    assert written_plugin("monitor", tpk.use("a:b", c=1)) == {"use": "a:b", "c": 1}


def test_a_class_of_the_script_has_its_importable_module(monkeypatch, tmp_path):
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(Greeting, "__module__", "__main__")
    assert written(Greeting())["not_written"] == "Greeting, which is defined in a notebook, or at a prompt"
    main.__file__ = str(tmp_path / "my-train.py")
    assert "my-train.py, which cannot be imported" in written(Greeting())["not_written"]
    main.__file__ = str(tmp_path / "train.py")
    assert written(Greeting) == {"ref": "train:Greeting"}
    main.__spec__ = types.SimpleNamespace(name="package.train")
    assert written(Greeting())["use"] == "package.train:Greeting"


def test_the_repr_of_a_callback_shows_its_arguments():
    assert repr(Bare()) == "Bare()"
    assert repr(Greeting("ho", times=2)) == "Greeting(text='ho', times=2)"
    assert repr(Greeting(Value(1), all=["a", Bare()])) == "Greeting(text=Value, all=['a', Bare])"
    assert repr(Greeting("long" * 50, odd=np.zeros(3), api_key="x")) == "Greeting(text=…, odd=…, api_key=…)"
    assert repr(tpk.PeriodicTrigger(tpk.ModelSaver(3), every_k_steps=2)) == "PeriodicTrigger(ModelSaver(max_to_keep=3))"
