"""Report of a conversion: the new source, and what is to be said about it."""

from __future__ import annotations

import attrs

from tpk.errors import TpkError


class ConversionError(TpkError, ValueError):
    """A script cannot be converted."""


class NothingToConvertError(ConversionError):
    """A module imports neither tensorpack nor TensorFlow nor NumPy."""


@attrs.frozen(order=True)
class Note:
    """Something to know about a line of the script.

    Attributes:
        line: the number of the line, in the script as it was.
        text: what is to be known.
    """

    line: int
    text: str


@attrs.frozen
class Conversion:
    """A converted script.

    Attributes:
        code: its source.
        marks: where somebody has to look: those lines have a comment that begins with ``# tpk:``.
        notes: what runs as it is, and is good to know.
    """

    code: str
    marks: tuple[Note, ...]
    notes: tuple[Note, ...]

    def summary(self, path: str) -> str:
        """Return both in words, a line each.

        Args:
            path: what to call the script.
        """
        lines = [f"{path}:{each.line}: LOOK AT THIS: {each.text}" for each in self.marks]
        lines += [f"{path}:{each.line}: {each.text}" for each in self.notes]
        counts = f"{path}: {len(self.marks)} marks, {len(self.notes)} notes"
        return "\n".join([*lines, counts])
