"""What tests of the step engine share: structures of fetches, a hooked session, and how results are compared."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple

import attrs
import numpy as np
import tensorflow as tf

from tpk.plugin import Callback, HookManager
from tpk.session import HookedSession

v1 = tf.compat.v1
Pair = namedtuple("Pair", ["first", "second"])


@attrs.define
class Both:
    first: object
    second: object


def hooked(sess, *callbacks, take_stop=lambda stop: None, **options):
    manager = HookManager(take_stop)
    manager.register_all(callbacks)
    return HookedSession(sess, manager.compile_step(), **options)


class Ask(Callback):
    """Asks for the same each time, and keeps what it gets."""

    def __init__(self, request):
        self.request = request
        self.got = []

    def before_run(self, run_context):
        return self.request

    def after_run(self, run_context, run_values):
        self.got.append(run_values.results)


def t(name):
    return v1.get_default_graph().get_tensor_by_name(name + ":0")


def op(name):
    return v1.get_default_graph().get_operation_by_name(name)


STRUCTURES = {
    "tensor": lambda: t("seven"),
    "operation": lambda: op("bump"),
    "operation that makes a tensor": lambda: op("seven"),
    "name": lambda: "seven:0",
    "name of an operation": lambda: "bump",
    "variable": lambda: v1.global_variables()[0],
    "strings": lambda: t("letters"),
    "list": lambda: [t("seven"), op("bump"), t("letters")],
    "empty list": lambda: [],
    "tuple": lambda: (t("seven"), [t("seven")]),
    "named tuple": lambda: Pair(t("seven"), op("bump")),
    "dict": lambda: {"x": t("seven"), "y": [t("letters")], "z": op("bump")},
    "ordered dict": lambda: OrderedDict([("y", t("seven")), ("x", t("letters"))]),
    "default dict": lambda: defaultdict(list, x=t("seven")),
    "dict with keys of all kinds": lambda: {1: t("seven"), "x": t("letters"), (2,): t("seven")},
    "nested": lambda: {"x": [Pair(t("seven"), {"y": Both(t("letters"), ())})]},
    "indexed slices": lambda: tf.IndexedSlices(t("pair"), t("rows"), None),
    "attrs": lambda: Both(t("seven"), t("letters")),
    "the same twice": lambda: [t("seven"), {"again": t("seven")}],
    "constant sparse": lambda: tf.sparse.from_dense([[0.0, 1.0]]),
    "ragged": lambda: tf.ragged.constant([[1], [2, 3]]),
}


def assert_same(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif attrs.has(type(theirs)):
        assert_same(attrs.astuple(ours, recurse=False), attrs.astuple(theirs, recurse=False))
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    elif hasattr(theirs, "to_list"):
        assert ours.to_list() == theirs.to_list()
    else:
        np.testing.assert_equal(ours, theirs)
