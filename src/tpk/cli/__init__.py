"""The ``tpk`` command: `tpk.cli.main` lists its subcommands; `tpk.cli.framework` has what they share."""

from __future__ import annotations
