"""Stored values and the variables of a graph, matched by name and assigned."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from tpk.checkpoint.fit import Fit, shape_text, target_of
from tpk.checkpoint.restore_table import Row, log_table
from tpk.checkpoint.stored_values import DictValues, StoredValues
from tpk.errors import CheckpointError
from tpk.graph.variables import assign_values, saveable_variables

logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class Match:
    """Which stored values go to which variables; nothing is read yet but shapes and dtypes.

    Attributes:
        values: the stored values.
        fits: what goes where.
        rows: what the log says of the names that go nowhere.
        problems: why nothing may be restored, a sentence each.
    """

    values: StoredValues
    fits: Sequence[Fit]
    rows: Sequence[Row]
    problems: Sequence[str]


def restore(sess: Any, values: Mapping[str, Any], source: str, ignore: Collection[str] = ()) -> None:
    """Assign `values` by name to the variables of the graph of `sess`, and report what did not match.

    Args:
        sess: the raw session.
        values: arrays by name.
        source: where they come from, for messages.
        ignore: names that are left out on purpose.

    Raises:
        CheckpointError: if no name fits, or a shape or dtype does not.
    """
    stored = values if isinstance(values, StoredValues) else DictValues(values, source)
    restore_matches(sess, [match(sess.graph, stored, ignore=ignore)])


def match(
    graph: Any,
    values: StoredValues,
    *,
    prefix: str | None = None,
    ignore: Collection[str] = (),
    ignore_mismatch: bool = False,
) -> Match:
    """Match `values` by name with the variables of `graph`.

    Args:
        graph: the graph.
        values: the stored values.
        prefix: each stored name stands for the variable ``<prefix>/<name>``.
        ignore: names that are left out on purpose, as in the graph or as stored.
        ignore_mismatch: a value of another shape is reshaped if it has as many elements as the variable, and left
            out otherwise; else it is a problem.

    Returns:
        The match, which may have problems.
    """
    scope = f"{prefix.rstrip('/')}/" if prefix else ""
    ignored = {name.removesuffix(":0") for name in ignore}
    targets = [target_of(variable) for variable in saveable_variables(graph)]
    known = {*values, *(name for target in targets for name in (target.name, target.stored_name))}
    if ignored - known:
        unknown = ", ".join(sorted(ignored - known))
        logger.warning("to be ignored, but neither in the graph nor in %s: %s", values.source, unknown)
    ignored |= {scope + name for name in ignored}
    targets = [target for target in targets if not {target.name, target.stored_name} & ignored]
    stored_names = {scope + name: name for name in values if not {name, scope + name} & ignored}

    fits: list[Fit] = []
    rows: list[Row] = []
    problems: list[str] = []
    used: set[str] = set()
    for target in sorted(targets, key=lambda target: target.name):
        known_as = target.name if target.name in stored_names else target.stored_name
        if known_as not in stored_names:
            rows.append(Row("missing", target.name, target.own_shape, "", "left as initialized"))
            continue
        used.add(known_as)
        fit = Fit(target if known_as == target.stored_name else target.alone(), stored_names[known_as], values)
        problem = _problem_of_dtype(fit) or (None if ignore_mismatch else _problem_of_shape(fit))
        if problem:
            problems.append(problem)
        elif fit.is_possible:
            fits.append(fit)
        else:
            rows.append(Row("mismatched", target.name, *_shapes(fit), "left as initialized"))
    unused = {name: stored for name, stored in stored_names.items() if name not in used}
    rows += [
        Row("unused", stored, "", shape_text(values.spec(stored).shape), "not in the graph")
        for stored in sorted(unused.values())
    ]
    if not used:
        problems.append(_nothing_matches(values.source, [target.name for target in targets], unused))
    return Match(values, fits, rows, problems)


def restore_matches(sess: Any, matches: Sequence[Match]) -> None:
    """Assign what `matches` found, in order, so that a later one wins; and write the table of it to the log.

    Raises:
        CheckpointError: if one of them has problems; nothing is assigned then. Or if a file is damaged.
    """
    problems = [problem for each in matches for problem in each.problems]
    if len(problems) > 1:
        raise CheckpointError(f"{len(problems)} problems with what is to be restored:\n- " + "\n- ".join(problems))
    if problems:
        raise CheckpointError(problems[0])
    winners: dict[str, Fit] = {}
    for each in matches:
        winners.update((fit.target.name, fit) for fit in each.fits)
    for each in matches:
        assign_values(sess, _read([fit for fit in each.fits if winners[fit.target.name] is fit]))
    log_table(_rows_of(matches, winners), [each.values.source for each in matches])


def _read(fits: Sequence[Fit]) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
    """Read the values one after the other; the parts of a partitioned variable from one reading of the whole."""
    name, value = None, np.empty(0)
    for fit in sorted(fits, key=lambda fit: fit.stored_name):
        if fit.stored_name != name:
            name, value = fit.stored_name, fit.values[fit.stored_name]
        yield fit.target.variable, fit.convert(value)


def _problem_of_shape(fit: Fit) -> str | None:
    if not fit.is_reshaped:
        return None
    of_graph, stored = _shapes(fit)
    return (
        f"variable {fit.target.name!r} has shape {of_graph}, the value for it {stored} in {fit.values.source}. "
        "Leave the name out by `ignore`, give a value of that shape, or see `SaverRestoreRelaxed`."
    )


def _problem_of_dtype(fit: Fit) -> str | None:
    if fit.target.takes_dtype(fit.spec):
        return None
    return (
        f"variable {fit.target.name!r} is {fit.target.dtype.name}, the value for it {fit.spec.dtype_name} in "
        f"{fit.values.source}, which is not cast without loss. Leave the name out by `ignore`, or cast it yourself "
        "and give it in a dictionary."
    )


def _shapes(fit: Fit) -> tuple[str, str]:
    return shape_text(fit.target.shape), shape_text(fit.spec.shape)


def _nothing_matches(source: str, names: Sequence[str], unused: Mapping[str, str]) -> str:
    stored = set(unused.values())
    prefixes = {
        name[: -len(tail) - 1]
        for name in names
        for tail in (name.split("/", depth)[-1] for depth in range(1, name.count("/") + 1))
        if tail in stored
    }
    remedy = "Rename them in a dictionary and give that as session_init."
    if len(prefixes) == 1:
        remedy = f"They fit with prefix={prefixes.pop()!r}."
    return (
        f"no variable of the graph is in {source}. In the graph: {_some(names)}; in {source}: {_some(stored)}. {remedy}"
    )


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "") if names else "none"


def _rows_of(matches: Sequence[Match], winners: Mapping[str, Fit]) -> list[Row]:
    """Return what became of each name in all of `matches` together."""
    rows = []
    mismatched = {row.name for each in matches for row in each.rows if row.status == "mismatched"}
    for each in matches:
        origin = f"from {each.values.source}" if len(matches) > 1 else ""
        for fit in each.fits:
            if winners[fit.target.name] is fit:
                notes = [origin, *fit.remarks]
                rows.append(Row("loaded", fit.target.name, *_shapes(fit), ", ".join(filter(None, notes))))
        for row in each.rows:
            if row.status == "unused":
                rows.append(attrs.evolve(row, note=", ".join(filter(None, [row.note, origin]))))
            elif row.name not in winners and not (row.status == "missing" and row.name in mismatched):
                rows.append(row)
    # Each of them misses what all of them miss.
    return list(dict.fromkeys(rows))
