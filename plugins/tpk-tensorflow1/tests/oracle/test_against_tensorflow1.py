"""Cases and scripts with TensorFlow 1.15 itself and with this package: the same variables, shapes and values.

To add a case, write a function in a file of `cases`; to add a script, put it into `../scripts`. `run_compared.py` says
what they return. `nox -s tf1_oracle` runs all of them.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(
    "TPK_TENSORFLOW_1_15" not in os.environ,
    reason="TPK_TENSORFLOW_1_15 is not set to a Python with TensorFlow 1.15; nox -s tf1_oracle has one",
)


def cases():
    """Return the names of all public functions in `cases`."""
    return [
        f"cases/{path.name}:{statement.name}"
        for path in sorted(HERE.glob("cases/*.py"))
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.FunctionDef) and not statement.name.startswith("_")
    ]


SCRIPTS = [f"../scripts/{path.name}" for path in sorted(HERE.parent.glob("scripts/*.py"))]


@pytest.mark.parametrize("name", [*cases(), *SCRIPTS])
def test_results_are_those_of_tensorflow_1(name, sides):
    theirs, ours = (results_of(side, name) for side in sides)
    assert set(ours) == set(theirs)
    # Variables and shapes first, since they explain differences of values.
    for key in sorted(theirs, key=lambda key: (theirs[key].dtype.kind != "U", not key.startswith("initially"))):
        expected, found = theirs[key], ours[key]
        if key.endswith("static shape"):
            assert knows(found, expected), f"{key}: {found}, expected {expected}"
        elif expected.dtype.kind == "U":
            assert found.tolist() == expected.tolist(), key
        else:
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape), key
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=key)


def knows(found, expected):
    """Whether a static shape, as text, says what is expected. It may say more."""
    found, expected = ast.literal_eval(str(found)), ast.literal_eval(str(expected))
    if expected is None:
        return True
    return (
        found is not None
        and [None if size is None else got for got, size in zip(found, expected, strict=True)] == expected
    )


def results_of(side, name):
    path, _, function = name.partition(":")
    directory = side / ".".join(filter(None, [Path(path).stem, function]))
    error = directory / "error.txt"
    assert not error.exists(), f"{side.name}: {error.read_text()}"
    with np.load(directory / "results.npz") as file:
        return dict(file)
