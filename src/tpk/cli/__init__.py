"""The ``tpk`` command: `tpk.cli.framework` says what a subcommand is, and `tpk.cli.main` lists them."""

from __future__ import annotations
