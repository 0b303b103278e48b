"""Descriptions of objects by the arguments of their constructors."""

from __future__ import annotations

import enum
import functools
import gc
import inspect
import json
import pickle
import weakref
from dataclasses import dataclass
from pathlib import Path

import attrs
import cloudpickle
import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.plugin.recorded_options import described, leaves_of, options_of


class Greeting(tpk.Callback):
    def __init__(self, text, *others, times=2, **further):
        self.words = [text, *others] * times


class Louder(Greeting):
    def __init__(self, text="hi", *, volume=1.5):
        super().__init__(text, times=3)
        self.volume = volume


class Inherited(Louder):
    pass


@attrs.frozen
class Value:
    _size: int = 3


@dataclass
class Data:
    size: int = 4


class Color(enum.Enum):
    RED = 1


def test_an_object_records_its_arguments_by_name_with_defaults():
    assert options_of(Greeting("a", "b", times=3, extra=1)) == {"text": "a", "others": ["b"], "times": 3, "extra": 1}
    assert options_of(Louder()) == {"text": "hi", "volume": 1.5}
    assert options_of(Inherited("ho")) == {"text": "ho", "volume": 1.5}
    assert options_of(tpk.EarlyStopping("cost", 3))["patience"] == 3
    assert options_of(tpk.BatchData([[1]], 1)) == {
        "flow": [[1]],
        "batch_size": 1,
        "remainder": False,
        "use_list": False,
    }
    assert options_of(object()) == {}


def test_constructors_keep_their_signatures_and_errors():
    assert list(inspect.signature(Louder).parameters) == ["text", "volume"]
    assert Greeting.__init__.__qualname__ == "Greeting.__init__"
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'text'"):
        Greeting()
    with pytest.raises(TypeError, match="unexpected keyword argument 'loud'"):
        Inherited(loud=True)


def test_arguments_are_not_kept_alive():
    class Holder(tpk.Callback):
        def __init__(self, big):
            self.size = len(big)

    big = np.zeros(100)
    gone = weakref.ref(big)
    holder = Holder(big)
    del big
    gc.collect()
    assert gone() is None and options_of(holder) == {"big": "float64 (100,)"}


def test_an_attrs_class_may_be_a_plugin():
    @attrs.define
    class Declared(tpk.Callback):
        size: int
        _depth: int = 2

        def trigger(self): ...

    assert described(Declared(size=5)) == {"name": "Declared", "options": {"size": 5, "depth": 2}}


def test_a_class_of_a_script_can_still_be_sent_to_a_worker():
    def make():
        class Flow(tpk.DataFlow):
            def __init__(self, size):
                self.size = size

            def __iter__(self):
                return iter(range(self.size))

        return Flow(3)

    sent = pickle.loads(cloudpickle.dumps(make()))
    assert list(sent) == [0, 1, 2] and options_of(sent) == {"size": 3}
    assert options_of(type(sent)(4)) == {"size": 4}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([None, True, 1, 0.5, "text"], [None, True, 1, 0.5, "text"]),
        ((float("inf"), float("nan")), ["inf", "nan"]),
        (np.float64(0.5), 0.5),
        (np.int32(3), 3),
        (np.zeros([2, 3], np.float32), "float32 (2, 3)"),
        (tf.TensorSpec([None, 3], tf.float32, "x"), "x float32 (None, 3)"),
        (np.dtype("int64"), "int64"),
        (tf.float16, "float16"),
        (Path("a/b"), "a/b"),
        (Color.RED, "Color.RED"),
        ({1: {"x": {2}}}, {"1": {"x": ["2"]}}),
        (list(range(100)), [0, "… 99 more"]),
        ({i: i for i in range(17)}, {**{str(i): i for i in range(16)}, "…": "1 more"}),
        ("x" * 3000, "x" * 2000 + "…"),
        (json.dumps, "json.dumps"),
        (lambda: 0, "test_description.<lambda>"),
        (functools.partial(json.dumps, indent=2), "functools.partial(json.dumps)"),
        (Data, "test_description.Data"),
        (object(), "object"),
        (Value(), {"name": "Value", "options": {"size": 3}}),
        (Data(), {"name": "Data", "options": {"size": 4}}),
        (tpk.use("ModelSaver", max_to_keep=3), {"name": "ModelSaver", "options": {"max_to_keep": 3}}),
        (Louder(), {"name": "Louder", "options": {"text": "hi", "volume": 1.5}}),
        (tf.compat.v1.ConfigProto(allow_soft_placement=True), "allow_soft_placement: true"),
        (
            {"api_key": "123", "password": b"1", "keys": 3},
            {"api_key": "(not told)", "password": "(not told)", "keys": 3},
        ),
    ],
)
def test_a_value_is_described(value, expected):
    found = described(value)
    if isinstance(expected, str) and expected.startswith("test_description."):
        assert found.endswith(expected)
    else:
        assert found == expected
    json.dumps(found, allow_nan=False)


def test_endless_nesting_is_cut_off():
    endless = []
    endless.append(endless)
    assert "list" in json.dumps(described(endless))


def test_a_value_that_cannot_be_inspected_is_described_by_its_type():
    class Closed:
        @property
        def dtype(self):
            raise OSError("closed")

    assert described(Closed()) == "Closed"


def test_a_description_is_flat_by_the_names_of_plugins():
    description = {
        "callbacks": [described(Greeting("a")), described(Greeting("b")), "c"],
        "devices": [1, 2],
        "seed": None,
    }
    assert leaves_of(description) == {
        "callbacks.Greeting": "Greeting",
        "callbacks.Greeting.text": "a",
        "callbacks.Greeting.others": [],
        "callbacks.Greeting.times": 2,
        "callbacks.Greeting#2": "Greeting",
        "callbacks.Greeting#2.text": "b",
        "callbacks.Greeting#2.others": [],
        "callbacks.Greeting#2.times": 2,
        "callbacks.c": "c",
        "devices": [1, 2],
        "seed": None,
    }
