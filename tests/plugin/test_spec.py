from __future__ import annotations

import inspect

import pytest

from tpk.plugin import Callback
from tpk.plugin.callback import HOOK_ARGUMENTS
from tpk.plugin.hookspecs import ConfigurationSpecs

SPECIFICATIONS = {
    name: getattr(specs, name)
    for specs in (ConfigurationSpecs, Callback)
    for name in vars(specs)
    if name in HOOK_ARGUMENTS
}


@pytest.mark.parametrize("hook", HOOK_ARGUMENTS)
def test_every_hook_is_documented(hook):
    documentation = inspect.getdoc(SPECIFICATIONS[hook])
    parts = ["Example:", "```python", f"def {hook}("]
    for part in ["Args:", *parts] if HOOK_ARGUMENTS[hook] else parts:
        assert part in documentation
    for argument in HOOK_ARGUMENTS[hook]:
        assert f"    {argument}: " in documentation


@pytest.mark.parametrize("hook", HOOK_ARGUMENTS)
def test_every_hook_is_typed(hook):
    signature = inspect.signature(SPECIFICATIONS[hook])
    annotated = [each.annotation for each in signature.parameters.values() if each.name != "self"]
    assert inspect.Signature.empty not in [*annotated, signature.return_annotation]
