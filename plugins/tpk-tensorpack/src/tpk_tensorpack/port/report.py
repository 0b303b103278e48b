"""The result of a conversion: the new source with marks and notes."""

from __future__ import annotations

import attrs

from tpk.errors import TpkError


class ConversionError(TpkError, ValueError):
    """Raised when a script cannot be converted."""


class NothingToConvertError(ConversionError):
    """Raised when a module imports neither tensorpack nor TensorFlow nor NumPy."""


@attrs.frozen(order=True)
class Note:
    """A message about a line of the script.

    Attributes:
        line: the line number in the original script.
        text: the message.
    """

    line: int
    text: str


@attrs.frozen
class Conversion:
    """A converted script.

    Attributes:
        code: the converted source.
        marks: places to check by hand; these lines have a comment that begins with ``# tpk:``.
        notes: differences that require no action.
    """

    code: str
    marks: tuple[Note, ...]
    notes: tuple[Note, ...]

    def summary(self, path: str) -> str:
        """Format marks and notes, one per line.

        Args:
            path: the name of the script.
        """
        lines = [f"{path}:{each.line}: CHECK THIS: {each.text}" for each in self.marks]
        lines += [f"{path}:{each.line}: {each.text}" for each in self.notes]
        counts = f"{path}: {len(self.marks)} marks, {len(self.notes)} notes"
        return "\n".join([*lines, counts])
