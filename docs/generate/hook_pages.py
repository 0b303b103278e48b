"""The reference of the hooks, from `tpk.Callback` and `tpk.plugin.hookspecs`."""

import ast
import inspect

from tpk.plugin.callback import MAY_STOP, STEP_HOOKS, Callback
from tpk.plugin.hookspecs import ConfigurationSpecs

WHEN = {
    "tpk_add_hookspecs": "when the plugin is registered",
    "tpk_configure": "before the names in the config are resolved",
    "tpk_default_callbacks": "after that",
    "setup_graph": "when the graph is built but not finalized; before the session",
    "before_train": "once, before the first epoch",
    "before_epoch": "before the first step of each epoch",
    "after_epoch": "after the last step of each epoch",
    "trigger_epoch": "after every `after_epoch`",
    "after_train": "once, at the end, however the run ends",
    "before_run": "before each run of `hooked_sess`",
    "after_run": "after each run of `hooked_sess`",
    "trigger_step": "after each step",
    "translate_error": "when a run of the session fails",
    "recover": "when a step fails",
    "before_checkpoint": "before a checkpoint is taken",
}
TITLES = {ConfigurationSpecs: "Before there is a trainer", Callback: "During a training run, in the order of the loop"}


def hooks():
    """Return the hooks, in the order of the specifications: their class, name and options."""
    return [
        (specs, name, function.tpk_spec)
        for specs in TITLES
        for name, function in vars(specs).items()
        if hasattr(function, "tpk_spec")
    ]


def table():
    """Return a table of all hooks, as Markdown."""
    lines = ["| hook | called | return values | `StopTraining` | wrappers |", "|---|---|---|---|---|"]
    for specs, name, options in hooks():
        answers = "the first one counts" if options["firstresult"] else "all" if returns_something(specs, name) else "—"
        is_step = name in STEP_HOOKS
        stops = "ends the run cleanly" if name in MAY_STOP else stop_elsewhere(name)
        wrappers = "no" if is_step or name == "after_train" else "yes"
        link = f"[`{name}`][{specs.__module__}.{specs.__name__}.{name}]"
        lines.append(f"| {link} | {WHEN[name]} | {answers} | {stops} | {wrappers} |")
    return "\n".join(lines)


def stop_elsewhere(name):
    return "ends the run before the step" if name == "before_run" else "—"


def returns_something(specs, name):
    (function,) = ast.parse(inspect.cleandoc(inspect.getsource(vars(specs)[name]))).body
    return ast.unparse(function.returns) != "None"


def reference():
    """Return the entry of each hook, as Markdown."""
    parts = []
    for specs, title in TITLES.items():
        parts.append(f"## {title}\n")
        for of, name, _ in hooks():
            if of is specs:
                parts.append(f"::: {specs.__module__}.{specs.__name__}.{name}\n    options: {{heading_level: 3}}\n")
    return "\n".join(parts)
