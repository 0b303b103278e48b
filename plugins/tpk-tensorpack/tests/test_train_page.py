"""What tensorpack's API page of `train` lists, in any release since 0.4, is here, or the manual says what to use.

`oracle/train_page.py` has made the list from six releases.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import tensorflow as tf
import tpk_tensorpack.train as page
from tpk_distributed.launch.tasks import reserved_cluster
from tpk_tensorpack.dataflow import DataFromList

import tpk

LISTED = [line.split("\t") for line in Path(__file__).with_name("train_page.tsv").read_text().splitlines()]
NAMES = {name for name, *_ in LISTED}
MANUAL = Path(__file__).parents[3] / "docs" / "coming-from" / "tensorpack.md"
# Parameters that are accepted, but not in the signatures; `test_older.py` passes them, too.
FORMER = ("config", "gpu_prefetch", "input_queue", "inputs_desc")


def test_every_class_and_function_can_be_imported_from_train():
    assert len(NAMES) == 29
    assert set(page.__all__) >= NAMES
    assert set(dir(page)) >= NAMES


def test_every_class_and_function_is_in_tpk_or_in_the_manual():
    explained = set(re.findall(r"`(\w+)", MANUAL.read_text(encoding="utf-8").partition("\n## ")[2]))
    assert {name for name in NAMES if not hasattr(tpk, name)} <= explained


def test_every_member_argument_and_default_is_here_or_in_the_manual(made):
    absent = {shown(*row) for row in LISTED if not is_here(*row, made)}
    section = MANUAL.read_text(encoding="utf-8").partition("\n## Names of `tensorpack.train`")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("|")]
    assert absent == set(re.findall(r"`([^`]+)`", " ".join(rows)))


@pytest.fixture(scope="module")
def made():
    """A `TrainConfig`, and a trainer of each class that takes it, with the default of each former parameter."""
    with reserved_cluster(workers=1, ps=1) as reserved:
        cluster = tf.train.ClusterSpec({"ps": list(reserved.ps), "worker": list(reserved.workers)})
        server = tf.compat.v1.train.Server(cluster, "worker", 0, start=False)
    config = page.TrainConfig(dataflow=DataFromList([[1.0]]), model=Model())
    made = {"TrainConfig": config}
    for name in {name for name, _, parameter, _ in LISTED if parameter == "config" and name[0].isupper()}:
        options = {"server": server} if name.startswith("Distributed") else {}
        for row in LISTED:
            if row[0] == name and row[2] in ("gpu_prefetch", "input_queue"):
                options[row[2]] = {"True": True, "None": None}[row[3]]
        made[name] = getattr(page, name)(config, **options)
    return made


def is_here(name, member, parameter, default, made):
    value = getattr(page, name)
    if parameter:
        function = getattr(value, member, None) if member else value
        # Of an absent member, its own line says so.
        return function is None or parameter in FORMER or takes(function, parameter, default)
    if default:
        return repr(getattr(made.get(name, value), member, None)) == default
    return not member or hasattr(value, member) or hasattr(made.get(name, value), member)


def takes(function, parameter, default):
    """Return whether a function has a parameter with this default, if any."""
    found = inspect.signature(function).parameters.get(parameter)
    return found is not None and (not default or repr(found.default) == default)


def shown(name, member, parameter, default):
    """Return how the manual writes a line of the list."""
    argument = f"{parameter}={default}" if default else parameter
    return f"{name}{'.' if member else ''}{member}{f'({argument})' if parameter else ''}"


class Model(page.ModelDesc):
    """A model that is not built."""
