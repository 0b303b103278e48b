"""Scripts converted to tpk's names and run as plain Python have the same results as with the runner.

Both use the same random draws. Therefore the costs of the first steps are the same, and the contents of the log
directory: the names of statistics, the tags of events, the variables in each checkpoint (name, shape, type), and their
steps; and also their values, if only the seeds determine them.
"""

from __future__ import annotations

import json

import attrs
import numpy as np
import pytest
from scripts_compared import TABLE, Row, check_arrays, check_costs, compared, in_both, tags, variables

pytest.importorskip("tensorpack", reason="it runs where the oracle does; nox -s port_oracle has it")
pytest.importorskip("libcst", reason="the converter, the extra port, wants libcst")

# Intended differences, in all scripts and in single ones; see the section on the converter in the README.
APART = "QueueInput/queue_size */QueueInput/queue_size"
UNEQUAL = "Throughput*"
DIFFERENCES = {
    # A training run that tpk resumes continues as if it had never stopped: actions before training are not repeated.
    "autoresume": Row(costs="cost", unequal="runs"),
    # tpk's ScalarStats weighs examples, not batches; the last batch of these evaluations is smaller.
    "digits": Row(costs="total_cost", unequal="validation_*"),
    "inference": Row(costs="cost", unequal="val_cost"),
    # Dropout draws from the same sources, unlike with tensorpack.
    "lstm": Row(),
    # Dropout draws in the order in which the iterations of a loop run, which differs in this graph.
    "ptb": Row(values=False),
    # As for `digits`.
    "residual": Row(costs="cost", unequal="validation_*"),
}


def row_of(name):
    """What to compare for a script: here, towers get their data in the same order on both sides."""
    row = DIFFERENCES.get(name, Row(values=TABLE[name].values, costs=" ".join(TABLE[name].costs)))
    return attrs.evolve(row, costs=" ".join(row.costs), unequal=" ".join([UNEQUAL, *row.unequal]), apart=APART)


@pytest.mark.parametrize("name", TABLE)
def test_a_converted_script_leaves_what_the_runner_leaves(sides, name):
    row = row_of(name)
    ours, converted = sides.of(name, "ours", "converted")
    for stats in sorted(ours.glob("**/stats.json")):
        check_statistics(row, stats, converted / stats.relative_to(ours))
    for directory in sorted({path.parent for path in ours.glob("**/events*")}):
        expected, found = in_both(row, tags(directory)), tags(converted / directory.relative_to(ours))
        assert {tag: found.get(tag) for tag in expected} == expected
    for index in sorted(ours.glob("**/*.index")):
        check_checkpoint(row, index, converted / index.relative_to(ours))
    for path in sorted([*ours.glob("**/*.npz"), *ours.glob("**/pictures-*.npy")]):
        if not path.parent.name.startswith("prepared"):
            check_arrays(row, path, converted / path.relative_to(ours))


@pytest.mark.parametrize("name", [name for name in TABLE if row_of(name).costs])
def test_steps_of_a_converted_script_cost_the_same(sides, name):
    check_costs(*sides.of(name, "ours", "converted"))


def check_statistics(row, ours, converted):
    """Compare the statistics of each step; tpk reports additional ones."""
    # A trainer that is kept still writes stats.json.
    lines = converted.with_suffix(".jsonl")
    reports = (
        json.loads(converted.read_text()) if converted.exists() else map(json.loads, lines.read_text().splitlines())
    )
    found = {}
    for report in reports:
        found.setdefault(report["global_step"], {}).update(report)
    for expected in json.loads(ours.read_text()):
        step = expected["global_step"]
        names = in_both(row, set(expected))
        assert names <= set(found[step])
        for name in compared(row, names):
            assert found[step][name] == pytest.approx(expected[name], rel=1e-4, abs=1e-6), f"{name}, step {step}"


def check_checkpoint(row, ours, converted):
    """Compare the variables of two checkpoints; in tpk, the file names of the best model end with the step."""
    if not converted.exists():
        (converted,) = converted.parent.glob(f"{converted.stem}-*.index")
    expected, found = (variables(str(path).removesuffix(".index")) for path in (ours, converted))
    kinds = [{name: (each.shape, each.dtype) for name, each in values.items()} for values in (found, expected)]
    assert in_both(row, kinds[0]) == in_both(row, kinds[1]), ours.name
    for name in compared(row, in_both(row, expected)):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=f"{ours.name}: {name}")
