"""``tpk plugins show``: the docstring, options and hooks of a plugin."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import click

from tpk.cli.framework import examples, quiet_tensorflow
from tpk.errors import PluginError
from tpk.plugin.callback import HOOK_NAMES
from tpk.plugin.catalog import GROUPS, CatalogEntry, get_catalog, unknown_plugin
from tpk.plugin.hook_names import namespaces_of
from tpk.plugin.implementations import implementations_of


@click.command(epilog=examples("tpk plugins show ModelSaver", "tpk plugins show my_callbacks:Shouting"))
@click.argument("name")
@click.option("--kind", type=click.Choice(list(GROUPS)), help="Required if two kinds have a plugin of this name.")
def show(name: str, kind: str | None) -> int:
    """Import a plugin, and show its docstring, options and hooks.

    NAME is a name in the list, or "module:attr".
    """
    quiet_tensorflow()
    entry = _find(name, kind)
    target = get_catalog().load(entry)
    if isinstance(target, click.Command):
        print(f"{entry}\n\n{target.get_help(click.Context(target, info_name=f'tpk {name}'))}")
        return 0
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
        raise PluginError(f"{name!r} is the name of a {' and of a '.join(kinds)}: choose one with --kind")
    if not kinds and ":" not in name:
        raise unknown_plugin([kind] if kind else [], name, catalog.entries())
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
        defined = {name for namespace in namespaces_of(target) for name in namespace}
        if "hook_implementations" in defined:
            return "they depend on the instance (hook_implementations)"
        if "trigger" in defined:
            defined.add("trigger_epoch")
        hooks = [hook for hook in HOOK_NAMES if hook in defined]
    elif callable(target):
        return "they depend on what it returns"
    else:
        hooks = [each.hook for each in implementations_of(target)]
    return ", ".join(hooks) or "none"
