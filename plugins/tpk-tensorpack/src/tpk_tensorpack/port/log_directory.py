"""The log and log directory of a script: convert tensorpack's `logger` to `logging` and a run directory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import libcst as cst

from tpk_tensorpack.port.arguments import bound
from tpk_tensorpack.port.edits import Edits, statements
from tpk_tensorpack.port.imports import Imports
from tpk_tensorpack.port.names import LOGGER_METHODS
from tpk_tensorpack.port.occurrences import Script, dotted, nodes_of, text_of

_SETTERS = ("auto_set_dir", "set_logger_dir")
_TRAINING = ("AutoResumeTrainConfig", "TrainConfig", "train_with_defaults")
_KEPT = 'resume="auto" resumes the run in the directory, which action="k" left to the script'
_ASKED = "an error is raised if the directory holds a run already, where tensorpack asked what to do"


class LogDirectory:
    """The log messages and the log directory of a script.

    Args:
        script: the script.
        uses: its uses of the module `logger` and of the names in it.

    Attributes:
        stays: why the script keeps tensorpack's `logger`; empty if it is converted.
        uses: its uses of `logger`.
    """

    def __init__(self, script: Script, uses: Sequence[Any]) -> None:
        self._script = script
        self.uses = list(uses)
        self._setters = [use for use in self.uses if use.name in _SETTERS]
        self._asked = [use for use in self.uses if use.name == "get_logger_dir"]
        self._sites = [call for call in script.calls if dotted(call.func).split(".")[-1] in _TRAINING]
        taken = {name.value for name in nodes_of(script.module, cst.Name)}
        self._name = next(name for name in ("run_dir", "directory_of_run", "run_directory") if name not in taken)
        self.stays = self._why_it_stays()

    @property
    def is_set(self) -> bool:
        """Return whether the script sets the log directory."""
        return bool(self._setters)

    def options(self, call: cst.Call) -> dict[str, str]:
        """Return the run directory options of a training call."""
        if not self.is_set:
            return {}
        if self.stays:
            logger = dotted(self._setters[0].node).rpartition(".")[0] or "logger"
            return {"run_dir": f"{logger}.get_logger_dir()", "resume": '"auto"'}
        actions = {_action(self._arguments(use)) for use in self._setters}
        return {"run_dir": self._name, **({"resume": '"auto"'} if "k" in actions else {})}

    def convert(self, edits: Edits, imports: Imports) -> None:
        """Convert the uses to a run directory and to `logging`."""
        for use in self._setters:
            edits.replaced[self._script.statement(use.node)] = statements(self._lines(use, imports))
        for use in self._asked:
            edits.put(self._script.call_of[use.node], self._name)
        logging = [use for use in self.uses if use.name in LOGGER_METHODS]
        names = {use.occurrence.root.value for use in logging if use.length == 1}
        name = names.pop() if len(names) == 1 else "logger"
        for use in logging:
            edits.put(use.node, f"{name}.{LOGGER_METHODS[use.name]}")
        if logging:
            imports.need("import logging")
            is_script = "__main__" in self._script.texts
            imports.behind += ["logging.basicConfig(level=logging.INFO)"] if is_script else []
            imports.behind.append(f'{name} = logging.getLogger(f"tpk.{{__name__}}")')

    def remarks(self) -> Iterator[tuple[cst.CSTNode, str]]:
        """Yield notes on different behavior, with their places in the script."""
        for use in self._setters:
            action = _action(self._arguments(use))
            if action in (None, "k"):
                yield use.node, f"{use.name}: {_ASKED if action is None else _KEPT}"

    def _why_it_stays(self) -> str:
        for use in self.uses:
            if use.name not in {*LOGGER_METHODS, *_SETTERS, "get_logger_dir"}:
                return f"{use.name} is used"
            if use.tail:
                return f"{use.name}.{use.tail[0]} is used"
        functions = {self._script.function(use.node) for use in self._setters}
        if len(functions) > 1:
            return "it is set in several functions"
        for use in (*self._setters, *self._asked):
            if use.node not in self._script.call_of:
                return f"{use.name} is not called"
        for use in self._setters:
            statement = self._script.statement(use.node)
            if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) > 1:
                return f"{use.name} is not a statement by itself"
            if (
                not isinstance(statement.body[0], cst.Expr)
                or statement.body[0].value is not self._script.call_of[use.node]
            ):
                return f"{use.name} is not a statement by itself"
            arguments = self._arguments(use)
            if arguments is None or _action(arguments) not in (None, "d", "k"):
                return f"this action of {use.name} has no equivalent"
        if self._asked and not self._setters:
            return "the log directory is set elsewhere"
        if self._setters and not self._sites and not self._asked:
            return "nothing is trained here"
        function = next(iter(functions), None)
        places = [*self._sites, *(use.node for use in self._asked)]
        if function is not None and not all(function in self._script.ancestors(place) for place in places):
            return "it is set in a function and used elsewhere"
        return ""

    def _arguments(self, use: Any) -> dict[str, cst.BaseExpression] | None:
        return bound(self._script.call_of[use.node].args, use.value)

    def _lines(self, use: Any, imports: Imports) -> list[str]:
        arguments = self._arguments(use) or {}
        lines = [f"{self._name} = {self._path(use, arguments, imports)}"]
        if _action(arguments) == "d":
            imports.need("import shutil")
            lines.append(f"shutil.rmtree({self._name}, ignore_errors=True)")
        if self._asked:
            imports.need("import os")
            lines.append(f"os.makedirs({self._name}, exist_ok=True)")
        return lines

    def _path(self, use: Any, arguments: dict[str, cst.BaseExpression], imports: Imports) -> str:
        if "dirname" in arguments:
            return self._script.module.code_for_node(arguments["dirname"])
        imports.need("from pathlib import Path")
        if "name" not in arguments:
            return 'f"train_log/{Path(__file__).stem}"'
        name = arguments["name"]
        if isinstance(name, cst.SimpleString):
            return f'f"train_log/{{Path(__file__).stem}}:{name.raw_value}"'
        return f'f"train_log/{{Path(__file__).stem}}:" + {self._script.module.code_for_node(name)}'


def _action(arguments: dict[str, cst.BaseExpression] | None) -> str | None:
    """Return the requested action: None for none, and another value if it is unknown."""
    action = (arguments or {}).get("action")
    if action is None or (isinstance(action, cst.Name) and action.value == "None"):
        return None
    return text_of(action) or "?"
