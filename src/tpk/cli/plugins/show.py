"""``tpk plugins show``: what one plugin is, takes and does."""

from __future__ import annotations

import inspect
import os
from types import ModuleType
from typing import Any

from tpk.errors import PluginError
from tpk.plugin.callback import HOOK_NAMES
from tpk.plugin.catalog import CatalogEntry, get_catalog, unknown_plugin
from tpk.plugin.hook_names import namespaces_of
from tpk.plugin.implementations import implementations_of


def show_plugin(name: str, kind: str | None) -> int:
    """Import the plugin `name` and write what it is to stdout.

    Args:
        name: a name of the catalog, or ``"module:attr"``.
        kind: needed if plugins of two kinds have this name.

    Returns:
        The exit status, 0.

    Raises:
        PluginError: there is no such plugin, or more than one, or it cannot be imported.
    """
    # What TensorFlow says about itself is not what was asked for.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    entry = _find(name, kind)
    target = get_catalog().load(entry)
    documentation = inspect.cleandoc(target.__doc__ or "It has no docstring.")
    sections = [str(entry), documentation, f"Options:{_options_of(target)}"]
    if entry.kind in ("callback", "monitor", "plugin"):
        sections.append(f"Hooks: {_hooks_of(target)}")
    print("\n\n".join(sections))
    return 0


def _find(name: str, kind: str | None) -> CatalogEntry:
    catalog = get_catalog()
    kinds = sorted({entry.kind for entry in catalog.entries(kind) if entry.name == name})
    if len(kinds) > 1:
        raise PluginError(f"{name!r} is the name of a {' and of a '.join(kinds)}: say which by --kind")
    if not kinds and ":" not in name:
        raise unknown_plugin(kind, name, catalog.entries())
    return catalog.find(kinds[0] if kinds else kind or "callback", name)


def _options_of(target: Any) -> str:
    if isinstance(target, ModuleType) or not callable(target):
        return " none"
    parameters = inspect.signature(target).parameters.values()
    return "".join(f"\n  {_describe(parameter)}" for parameter in parameters) or " none"


def _describe(parameter: inspect.Parameter) -> str:
    # `str(parameter)` puts quotes around postponed annotations.
    annotation = parameter.annotation
    text = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
    if annotation is not parameter.empty:
        text += f": {annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {parameter.default!r}"


def _hooks_of(target: Any) -> str:
    if inspect.isclass(target):
        hooks = _hooks_of_class(target)
    elif callable(target):
        return "those of what it returns"
    else:
        hooks = [each.hook for each in implementations_of(target)]
    return ", ".join(hooks) or "none"


def _hooks_of_class(target: type) -> list[str]:
    defined = {name for namespace in namespaces_of(target) for name in namespace}
    if "hook_implementations" in defined:
        return ["an instance says which (hook_implementations)"]
    if "trigger" in defined:
        defined.add("trigger_epoch")
    return [hook for hook in HOOK_NAMES if hook in defined]
