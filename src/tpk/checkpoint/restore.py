"""Stored values and the variables of a graph, matched by name and assigned."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from tpk.checkpoint.stored_values import STORED_BFLOAT16, DictValues, StoredValues, ValueSpec
from tpk.checkpoint.variable_writer import saved_name, saved_part
from tpk.errors import CheckpointError
from tpk.graph.variables import assign_values, saveable_variables, variable_name
from tpk.text import shorten, some, text_table
from tpk.tf_internals import slice_info

logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class Match:
    """Stored values matched with variables. Only shapes and dtypes have been read yet.

    Attributes:
        values: the stored values.
        fits: the values that will be assigned, with their variables.
        rows: the names that are left out, for the log.
        problems: the reasons why nothing may be restored, a sentence each.
    """

    values: StoredValues
    fits: Sequence[Fit]
    rows: Sequence[Row]
    problems: Sequence[str]


def match(
    graph: Any,
    values: StoredValues,
    *,
    prefix: str | None = None,
    ignore: Collection[str] = (),
    ignore_mismatch: bool = False,
    must_match: bool = True,
) -> Match:
    """Match `values` by name with the variables of `graph`.

    Args:
        graph: the graph.
        values: the stored values.
        prefix: the stored name ``<name>`` belongs to the variable ``<prefix>/<name>``.
        ignore: names to leave out, as in the graph or as stored.
        ignore_mismatch: reshape a value of another shape if it has as many elements as the variable, and leave it out
            otherwise. If False, another shape is a problem.
        must_match: whether it is a problem if no name matches; otherwise a warning is logged.

    Returns:
        The match, which may have problems.
    """
    scope = f"{prefix.rstrip('/')}/" if prefix else ""
    ignored = {name.removesuffix(":0") for name in ignore}
    targets = [target_of(variable) for variable in saveable_variables(graph)]
    known = {*values, *(name for target in targets for name in (target.name, target.stored_name))}
    if ignored - known:
        unknown = ", ".join(sorted(ignored - known))
        logger.warning("names to ignore that are neither in the graph nor in %s: %s", values.source, unknown)
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
        nothing = _nothing_matches(values.source, [target.name for target in targets], unused)
        if must_match:
            problems.append(nothing)
        else:
            logger.warning("%s", nothing)
    return Match(values, fits, rows, problems)


def restore_matches(sess: Any, matches: Sequence[Match]) -> None:
    """Assign the values of `matches` in order, so that a later one wins, and log a table of all names.

    Raises:
        CheckpointError: if one of them has problems, and then nothing is assigned; or if a file is damaged.
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
    """Read the values one after the other. The parts of a partitioned variable come from one read of the whole."""
    name, value = None, np.empty(0)
    for fit in sorted(fits, key=lambda fit: fit.stored_name):
        if fit.stored_name != name:
            name, value = fit.stored_name, fit.values[fit.stored_name]
        yield fit.target.variable, fit.convert(value)


def _problem_of_shape(fit: Fit) -> str | None:
    if not fit.is_reshaped:
        return None
    of_graph, stored = _shapes(fit)
    source = "values" if isinstance(fit.values, DictValues) else repr(fit.values.source)
    return (
        f"variable {fit.target.name!r} has shape {of_graph}, the value for it {stored} in {fit.values.source}. "
        f"{how_to_restore_the_rest(source)}"
    )


def how_to_restore_the_rest(source: str) -> str:
    """Return the sentence that says how to restore the variables that have not changed.

    Args:
        source: the stored values, as a Python expression.
    """
    options = "ignore_mismatch=True, weights_only=True"
    return f"session_init=tpk.SmartInit({source}, {options}) restores the variables that are the same."


def _problem_of_dtype(fit: Fit) -> str | None:
    if fit.target.takes_dtype(fit.spec):
        return None
    return (
        f"variable {fit.target.name!r} is {fit.target.dtype.name}, the value for it {fit.spec.dtype_name} in "
        f"{fit.values.source}, which cannot be cast without loss. Leave it out with `ignore`, or cast it yourself "
        "and pass it in a dictionary."
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
    remedy = "Rename them in a dictionary and pass it as session_init; or allow that nothing matches: must_match=False."
    if len(prefixes) == 1:
        remedy = f"They match with prefix={prefixes.pop()!r}."
    return (
        f"no variable of the graph is in {source}. In the graph: {some_of(names)}; in {source}: {some_of(stored)}. "
        f"{remedy}"
    )


def some_of(names: Collection[str]) -> str:
    """Return a few of `names` for messages, those in the fewest scopes first."""
    by_depth: list[str] = sorted(names, key=lambda name: (name.count("/"), name))
    return some(by_depth) or "none"


def _rows_of(matches: Sequence[Match], winners: Mapping[str, Fit]) -> list[Row]:
    """Return a row for each name in all of `matches` together."""
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
    # A name that is missing everywhere is in the rows of each match.
    return list(dict.fromkeys(rows))


@attrs.frozen(eq=False)
class Target:
    """A variable that may be restored, as a checkpoint sees it.

    Attributes:
        variable: the variable.
        name: its name in the graph.
        stored_name: its name in checkpoints; a part of a partitioned variable has the name of the whole.
        shape: the shape of the stored value; None if it is unknown, and so is each dimension that is None.
        part: the index of the variable's part in the stored value.
    """

    variable: Any
    name: str
    stored_name: str
    shape: tuple[int | None, ...] | None
    part: tuple[slice, ...]

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the variable."""
        return self.variable.dtype.base_dtype

    @property
    def own_shape(self) -> str:
        """The shape of the variable itself."""
        return shape_text(_static_shape(self.variable))

    def alone(self) -> Target:
        """Return the target for a value that is stored for this part of a partitioned variable only."""
        return attrs.evolve(self, stored_name=self.name, shape=_static_shape(self.variable), part=())

    def takes_dtype(self, spec: ValueSpec) -> bool:
        """Return whether a value like `spec` may be cast to the dtype of the variable.

        Casts between floating-point dtypes are always allowed, and round. Others are allowed only if the dtype of the
        variable can represent every value of the stored one. Plain Python numbers may be cast to any dtype of their
        kind.
        """
        stored, wanted = _tensorflow_dtype(spec), self.dtype
        if stored is None:
            return False
        if stored == wanted:
            return True
        if tf.string in (stored, wanted):
            return False
        if stored.is_floating or stored.is_complex:
            return bool(wanted.is_complex or (stored.is_floating and wanted.is_floating))
        if spec.is_literal and stored.is_integer:
            return not wanted.is_bool
        return bool(np.can_cast(spec.dtype, wanted.as_numpy_dtype, "safe"))


def target_of(variable: Any) -> Target:
    """Return `variable` as a checkpoint sees it."""
    info = slice_info(variable)
    shape = _static_shape(variable) if info is None else tuple(info.full_shape)
    return Target(variable, variable_name(variable), saved_name(variable), shape, saved_part(variable))


def shape_text(shape: tuple[int | None, ...] | None) -> str:
    """Return `shape` for people, such as ``(?, 64)``."""
    return "unknown" if shape is None else str(shape).replace("None", "?")


def _tensorflow_dtype(spec: ValueSpec) -> tf.DType | None:
    if spec.dtype == STORED_BFLOAT16:
        return tf.bfloat16
    try:
        return tf.as_dtype(spec.dtype)
    except TypeError:
        return None


def _static_shape(variable: Any) -> tuple[int | None, ...] | None:
    return None if variable.shape.rank is None else tuple(variable.shape.as_list())


@attrs.frozen(eq=False)
class Fit:
    """A stored value and the variable that it is assigned to.

    Attributes:
        target: the variable.
        stored_name: the name of the value.
        values: the stored values.
    """

    target: Target
    stored_name: str
    values: StoredValues

    @property
    def spec(self) -> ValueSpec:
        """Shape and dtype of the value."""
        return self.values.spec(self.stored_name)

    @property
    def is_reshaped(self) -> bool:
        """Whether the shape of the value differs from the shape that the variable expects."""
        wanted, stored = self.target.shape, self.spec.shape
        if wanted is None:
            return False
        return len(wanted) != len(stored) or any(
            size not in (None, other) for size, other in zip(wanted, stored, strict=True)
        )

    @property
    def is_possible(self) -> bool:
        """Whether the value has the shape of the variable, or at least its number of elements."""
        if not self.is_reshaped:
            return True
        wanted = tf.TensorShape(self.target.shape).num_elements()
        return wanted is not None and wanted == int(np.prod(self.spec.shape, dtype=np.int64))

    @property
    def remarks(self) -> list[str]:
        """Notes for the log, such as a change of shape or dtype."""
        remarks = []
        if self.target.part:
            remarks.append(f"part of {self.stored_name}")
        if self.is_reshaped:
            remarks.append("reshaped")
        if not self.spec.is_literal and _tensorflow_dtype(self.spec) != self.target.dtype:
            remarks.append(f"cast from {self.spec.dtype_name} to {self.target.dtype.name}")
        return remarks

    def convert(self, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the variable's part of `value`, in its shape and dtype.

        Raises:
            CheckpointError: if the dtype of the variable cannot represent a number in it.
        """
        if self.is_reshaped:
            value = value.reshape(self.target.shape)
        value = value[self.target.part]
        if value.dtype == STORED_BFLOAT16:
            value = value.view(tf.bfloat16.as_numpy_dtype)
        wanted = np.dtype(self.target.dtype.as_numpy_dtype)
        if value.dtype == wanted or self.target.dtype == tf.string:
            return value
        if self.spec.is_literal and self.target.dtype.is_floating:
            # Plain Python integers are rounded like plain floats.
            value = value.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            cast = value.astype(wanted)
            survives = _same_but_rounded(value, cast)
        if not survives.all():
            raise CheckpointError(
                f"variable {self.target.name!r} is {self.target.dtype.name} and cannot hold "
                f"{value[~survives].flat[0]!s}, which {self.values.source} has for it as {self.spec.dtype_name}. "
                "Leave it out with `ignore`, or change the dtype of one of them."
            )
        return cast


def _same_but_rounded(value: np.ndarray[Any, Any], cast: np.ndarray[Any, Any]) -> Any:
    if value.dtype.kind in "biu":
        return cast.astype(value.dtype) == value
    return np.isfinite(cast) | ~np.isfinite(value)


STATUSES = ("mismatched", "missing", "unused", "loaded")
"""In the order of the table: first what may need attention."""

_MAX_ROWS = {"mismatched": 20, "missing": 20, "unused": 20, "loaded": 10}
_MAX_NAME = 72
_HEADER = ("", "name", "in the graph", "stored", "")


@attrs.frozen
class Row:
    """One name, and whether it was restored.

    Attributes:
        status: ``"loaded"``, ``"missing"`` (in the graph only), ``"unused"`` (stored only), or ``"mismatched"``
            (in both, but it does not fit).
        name: the name in the graph, or as stored.
        graph_shape: the shape in the graph; empty if it is not in the graph.
        stored_shape: the shape of the stored value; empty if nothing is stored.
        note: what is unusual about it.
    """

    status: str
    name: str
    graph_shape: str
    stored_shape: str
    note: str = ""


def log_table(rows: Sequence[Row], sources: Sequence[str]) -> None:
    """Log `rows`: a limited number of each status, and all of them at DEBUG. If anything was not loaded, warn.

    Args:
        rows: all names.
        sources: where the values came from.
    """
    text, is_whole = format_table(rows, sources)
    is_clean = all(row.status == "loaded" for row in rows)
    logger.log(logging.INFO if is_clean else logging.WARNING, "%s", text)
    if not is_whole and logger.isEnabledFor(logging.DEBUG):
        logger.debug("all of them:\n%s", "\n".join(text_table(_HEADER, map(_cells, _in_order(rows)))))


def format_table(rows: Sequence[Row], sources: Sequence[str]) -> tuple[str, bool]:
    """Return a table with a limited number of lines, and whether it shows all names in full.

    Args:
        rows: all names.
        sources: where the values came from.
    """
    counts = {status: sum(row.status == status for row in rows) for status in STATUSES}
    others = "".join(f", {counts[status]:,} {status}" for status in STATUSES if counts[status] and status != "loaded")
    summary = f"restored {counts['loaded']:,} variables from {', then '.join(sources)}{others}"
    cells: list[tuple[str, ...]] = []
    is_whole = True
    for status in STATUSES:
        group = [row for row in rows if row.status == status]
        # Rows with a note come first: among many that were loaded, these matter.
        shown = sorted(group, key=lambda row: not row.note)[: _MAX_ROWS[status]]
        cells += [_cells(attrs.evolve(row, name=shorten(row.name, _MAX_NAME))) for row in _in_order(shown)]
        if len(shown) < len(group):
            cells.append((status, f"… and {len(group) - len(shown):,} more", "", "", ""))
        is_whole &= len(shown) == len(group) and all(len(row.name) <= _MAX_NAME for row in shown)
    return "\n  ".join([summary, *text_table(_HEADER, cells)]), is_whole


def _in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (STATUSES.index(row.status), row.name))


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    return row.status, row.name, row.graph_shape or "-", row.stored_shape or "-", row.note
