"""The ``tpk`` command: which plugins there are, what they take, and a package to start a new one from."""

from __future__ import annotations
