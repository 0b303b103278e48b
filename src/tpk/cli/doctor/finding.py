"""Findings of ``tpk doctor``."""

from __future__ import annotations

import attrs


@attrs.frozen
class Finding:
    """Something that was looked at.

    Attributes:
        state: ``"ok"``; ``"warning"`` if something may not work; ``"failed"`` if something does not.
        what: what was looked at.
        found: what is there.
        remedy: what to do about it; empty where all is well.
    """

    state: str = attrs.field(validator=attrs.validators.in_(("ok", "warning", "failed")))
    what: str
    found: str
    remedy: str = ""

    def as_data(self) -> dict[str, str]:
        """Return it as plain data."""
        return attrs.asdict(self)
