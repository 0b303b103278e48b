from __future__ import annotations

import math

import pytest

from tpk.errors import PluginImportError
from tpk.plugin.creation import import_optional


def test_an_installed_package_is_imported():
    assert import_optional("math", "Thing", "math") is math


def test_a_missing_package_is_an_error_that_says_how_to_install_it():
    with pytest.raises(PluginImportError) as caught:
        import_optional("no_such_package.part", "Thing", "'tpk-train[such]'", "Or do without.")
    assert str(caught.value) == (
        "Thing needs no_such_package, which cannot be imported: pip install 'tpk-train[such]'. Or do without."
    )
    assert isinstance(caught.value.__cause__, ImportError)
