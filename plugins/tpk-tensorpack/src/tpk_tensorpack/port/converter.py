"""Convert one module: decide which names become tpk's and which are kept."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import attrs
import libcst as cst
import tensorflow
from libcst import matchers
from tpk_tensorflow1.runner.imports import replacement

import tpk
import tpk_tensorpack
from tpk_tensorpack.port import classes, foreign
from tpk_tensorpack.port.arguments import bound, by_position, rebind, takes_any_number
from tpk_tensorpack.port.edits import Edits, keyword, with_arguments
from tpk_tensorpack.port.imports import Imports
from tpk_tensorpack.port.log_directory import LogDirectory
from tpk_tensorpack.port.names import (
    CALLED,
    CONVERTED,
    EXPRESSIONS,
    KEPT,
    OUTSIDE_OF_GRAPHS,
    OUTSIDE_OF_TRAININGS,
    REWRITTEN,
    SESSION_INITS,
    SEVERAL_DEVICES,
    STAY_WITH_TRAINING,
    TRAINING,
    Rule,
)
from tpk_tensorpack.port.occurrences import TF1, Occurrence, Script, module_of, package_of, text_of
from tpk_tensorpack.port.report import Conversion, ConversionError, Note, NothingToConvertError

_PREDICTION = ("OfflinePredictor", "PredictConfig")
_MODES = ("cpu", "hierarchical", "nccl")
_OF_OLDER_CONFIGS = ("nr_tower", "predict_tower")
_OF_CONFIGS = frozenset({"PredictConfig", "OfflinePredictor", "FeedfreePredictor"})
_SUPER_INIT = matchers.Call(matchers.Attribute(matchers.Call(matchers.Name("super")), matchers.Name("__init__")))


@attrs.define(eq=False)
class Use:
    """A use of a tensorpack name.

    Attributes:
        occurrence: its place and its import.
        name: its name in tensorpack.
        value: the object with that name.
        length: the number of attributes in the chain that form the name.
        module: the module in which the name was found.
    """

    occurrence: Occurrence
    name: str
    value: Any
    length: int
    module: str

    @property
    def node(self) -> cst.BaseExpression:
        """The expression for the name."""
        return self.occurrence.prefix(self.length)

    @property
    def room(self) -> str:
        """The tensorpack package that defines the name, such as ``dataflow``."""
        return str(getattr(self.value, "__module__", "")).removeprefix("tpk_tensorpack.").partition(".")[0]

    @property
    def tail(self) -> tuple[str, ...]:
        """The attributes after the name."""
        return self.occurrence.rest[self.length :]


def convert_module(source: str, path: str) -> Conversion:
    """Convert a module; see `tpk_tensorpack.port.convert`."""
    try:
        script = Script(source)
    except cst.ParserSyntaxError as error:
        raise ConversionError(f"{path} is not valid Python 3: {error.message} (line {error.raw_line})") from None
    imported = script.imported
    if imported & {"tpk", "tpk_tensorpack"}:
        raise ConversionError(
            f"{path} imports {', '.join(sorted(imported & {'tpk', 'tpk_tensorpack'}))}: it has "
            "already been converted. Convert the original script"
        )
    if not script.imports:
        raise NothingToConvertError(f"{path} imports neither tensorpack nor TensorFlow nor NumPy: nothing to convert")
    return _Conversion(script).run()


class _Conversion:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.edits = Edits()
        self.imports = Imports(script)
        self.uses: list[Use] = []
        self.tensorflow: list[tuple[Occurrence, tuple[str, ...]]] = []
        self.numpy: list[Occurrence] = []
        self.notes: set[Note] = set()
        self.marks: set[Note] = set()
        self._own: dict[cst.ClassDef, classes.OwnClass] = {}
        self._training_stays = ""
        self._prediction_stays = ""
        self._handled: set[cst.CSTNode] = set()
        self._inits_stay = self._calls_get_data = self._switches_itself = False

    def run(self) -> Conversion:
        for occurrence in self.script.occurrences:
            self._sort(occurrence)
        self._find_classes()
        self.log = LogDirectory(self.script, [use for use in self.uses if _is_of_logger(use)])
        self._decide_on_groups()
        for family in classes.families(self._own.values()):
            self._convert_family(family)
        for use in self.uses:
            self._convert_use(use)
        self._tell_of_predictors()
        self._convert_own_calls()
        self._convert_log()
        for occurrence, written in self.tensorflow:
            self._convert_tensorflow(occurrence, written)
        for occurrence in self.numpy:
            self._convert_numpy(occurrence)
        self._look_for_strings()
        if self._switches_itself:
            self.imports.want_tensorflow1 = False
        elif self.imports.want_tensorflow1:
            self.imports.tensorflow_name()
        for mark in sorted(self.marks):
            self.notes.discard(mark)
        code = self.imports.apply(self.edits).code
        return Conversion(code, tuple(sorted(self.marks)), tuple(sorted(self.notes)))

    # Resolve names.

    def _sort(self, occurrence: Occurrence) -> None:
        path = occurrence.path
        package = package_of(path)
        of_tfv1 = next((each for each in TF1 if path == each or path.startswith(f"{each}.")), None)
        if of_tfv1 is not None:
            written = tuple(path.removeprefix(of_tfv1).split("."))[1:]
            self.tensorflow.append((occurrence, written))
        elif package == "tensorflow":
            if not self._is_of_today(occurrence):
                self.tensorflow.append((occurrence, tuple(path.split("."))[1:]))
        elif package == "numpy":
            self.numpy.append(occurrence)
        else:
            self._find_use(occurrence)

    def _is_of_today(self, occurrence: Occurrence) -> bool:
        """Return whether the runner would also leave the import unchanged."""
        statement = occurrence.statement
        module = occurrence.binding
        if isinstance(statement, cst.ImportFrom):
            module = occurrence.binding.rpartition(".")[0]
        return package_of(module) == "tensorflow" and replacement(module) is None

    def _find_use(self, occurrence: Occurrence) -> None:
        parts = occurrence.path.split(".")[1:]
        behind = len(parts) - len(occurrence.rest)
        value: Any = tpk_tensorpack
        length, module = 0, ""
        try:
            if isinstance(occurrence.statement, cst.ImportFrom):
                # A package may export a function with the same name as one of its modules.
                module = module_of(occurrence.statement).partition(".")[2]
                length = len(module.split(".")) if module else 0
                value = importlib.import_module(".".join(filter(None, ["tpk_tensorpack", module])))
            while length < len(parts) and isinstance(value, ModuleType):
                module = value.__name__.removeprefix("tpk_tensorpack").removeprefix(".")
                value = _member(value, parts[length])
                length += 1
        except (AttributeError, ImportError) as error:
            self._mark(occurrence.node, f"cannot import {occurrence.path}: {error}")
            self.imports.keep(occurrence, "")
            return
        if length < behind:
            self._mark(occurrence.node, f"tensorpack has no name {occurrence.path}")
            return
        name = parts[length - 1] if length else "tensorpack"
        self.uses.append(Use(occurrence, name, value, length - behind, module))

    def _find_classes(self) -> None:
        uses = {use.node: use for use in self.uses if not use.tail}
        for node in self.script.classes:
            own = classes.OwnClass(node)
            for base in node.bases:
                use, parent = uses.get(base.value), self.script.class_of(base.value)
                if use is not None:
                    own.bases.append(use)
                    own.kinds[use.name] = self._kind(use)
                elif parent in self._own:
                    own.parents.append(self._own[parent])
            if own.kinds or own.parents:
                self._own[node] = own

    def _kind(self, use: Use) -> str:
        if _same_in_tpk(use.value) is not None:
            return "same"
        rule = CONVERTED.get(use.name)
        return rule.kind if rule is not None and _fits(use, rule) else ""

    # Decide what to convert.

    def _decide_on_groups(self) -> None:
        names = {use.name for use in self.uses}
        self._training_stays = self._why_training_stays()
        self._prediction_stays = self._why_prediction_stays(names)
        self._calls_get_data = any(each.attr.value == "get_data" for each in self.script.attributes)
        self._inits_stay = any(each.attr.value == "init" for each in self.script.attributes)

    def _why_training_stays(self) -> str:
        for use in self.uses:
            if use.name not in TRAINING:
                continue
            if use.tail:
                return f"{use.name}.{use.tail[0]} is used"
            if use.name in EXPRESSIONS:
                continue
            reason = self._why_call_stays(use)
            if reason:
                return f"{use.name}: {reason}"
        for family in classes.families(self._own.values()):
            if any("trainer" in each.all_kinds() for each in family):
                reason = classes.why_it_stays(family, self.script)
                if reason:
                    return reason
        if any(use.room == "contrib" for use in self.uses):
            return "contrib needs tensorpack's trainers"
        if any(use.name == "MultiThreadAsyncPredictor" for use in self.uses):
            return "MultiThreadAsyncPredictor needs the predictors of tensorpack's trainers"
        for node in self.script.attributes:
            in_class = any(isinstance(each, cst.ClassDef) for each in self.script.ancestors(node))
            if node.attr.value in ("get_predictor", "hooked_sess", "sess") and not in_class:
                return f"{node.attr.value} is used outside of a class, where tpk may have closed the session"
            if node.attr.value in _OF_OLDER_CONFIGS:
                return f"{node.attr.value} is set, which trainers of tensorpack 0.8 and earlier read from their config"
        for call in self.script.calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value == "train" and not call.args:
                return (
                    "a trainer of tensorpack 0.8 or earlier trains by train(), with the config that it was created from"
                )
        if any(use.name == "AutoResumeTrainConfig" for use in self.uses) and not self.log.is_set:
            return "AutoResumeTrainConfig: the log directory is set elsewhere"
        return ""

    def _why_prediction_stays(self, names: set[str]) -> str:
        others = [
            use.name
            for use in self.uses
            if (use.room == "predict" and use.name not in _OF_CONFIGS) or use.name == "ModelExporter"
        ]
        if others:
            return f"{others[0]} uses it and is kept"
        leaving_out = {"ignore", "ignore_mismatch"}
        if "SaverRestoreRelaxed" in names or any(
            arg.keyword is not None and arg.keyword.value in leaving_out
            for call in self.script.calls
            for arg in call.args
        ):
            return "variables may be left without values, but tpk requires values for all"
        reasons = (
            f"{use.name}.{use.tail[0]} is used" if use.tail else self._why_call_stays(use)
            for use in self.uses
            if use.name in _PREDICTION
        )
        return next(filter(None, reasons), "")

    def _why_call_stays(self, use: Use) -> str:
        """Return why a use of a name in `CONVERTED` is kept, or an empty string if it is converted."""
        rule = CONVERTED[use.name]
        if not _fits(use, rule):
            return "it differs from tpk's"
        call = self.script.call_of.get(use.node)
        if call is None:
            return "it is not called directly" if use.name in CALLED else ""
        return _why_arguments_stay(call, use, rule)

    def _convert_family(self, family: list[classes.OwnClass]) -> None:
        kinds = {kind for each in family for kind in each.all_kinds()}
        # It builds its graph in the default graph, before training.
        self.imports.want_tensorflow1 |= "trainer" in kinds
        stays = classes.why_it_stays(family, self.script)
        if "trainer" in kinds and self._training_stays:
            stays = self._training_stays
        placeholders: dict[cst.Call, str] = {}
        if "model" in kinds:
            of_tensorflow = [occurrence for occurrence, _ in self.tensorflow]
            for each in family:
                placeholders |= classes.signature_of_placeholders(each, of_tensorflow, self.script)
            stays = stays or next((reason for reason in placeholders.values() if reason), "")
        for each in family:
            each.stays = stays
        if stays:
            return
        roots = {occurrence.root.value for occurrence, _ in self.tensorflow}
        for each in family:
            tf = self.imports.tensorflow_name() if roots else ""
            classes.convert_class(each, self.script, self.edits, tf, roots)
        for call in placeholders:
            self._handled.add(call.func)
            tf = self.imports.tensorflow_name()
            self.edits.change(call, lambda updated, tf=tf: classes.as_tensor_spec(updated, tf))

    def _convert_use(self, use: Use) -> None:
        if _is_of_logger(use):
            return
        if isinstance(use.value, ModuleType):
            self._keep(use, "")
            return
        same = _same_in_tpk(use.value)
        rule = CONVERTED.get(use.name)
        if same is not None:
            self._replace(use, f"tpk.{same}")
        elif use.name in EXPRESSIONS and not self._training_stays and not use.tail:
            call = self.script.call_of.get(use.node)
            if call is None:
                self._keep(use, "it is not called directly")
                return
            self._handled.add(use.node)
            self.edits.put(call, EXPRESSIONS[use.name])
            self.imports.need("import tpk")
        elif rule is not None:
            self._convert_by_rule(use, rule)
        else:
            self._keep(use, KEPT.get(use.name, ""))

    def _convert_by_rule(self, use: Use, rule: Rule) -> None:
        reason = self._why_stays(use, rule)
        if reason:
            self._keep(use, reason)
            return
        call = self.script.call_of.get(use.node)
        if call is not None:
            self._convert_call(call, use, rule)
        if rule.note:
            self._note(use.node, f"{use.name}: {rule.note}")
        self._replace(use, f"tpk.{rule.to}")

    def _why_stays(self, use: Use, rule: Rule) -> str:
        if use.name in TRAINING and self._training_stays:
            return self._training_stays
        if use.name in _PREDICTION and self._prediction_stays:
            return self._prediction_stays
        if use.name in SESSION_INITS and self._inits_stay:
            return "init is called, which tpk's does not have"
        if use.room == "dataflow" and self._calls_get_data:
            return "get_data is called, which tpk's does not have"
        own = next((each for each in self._own.values() if use in each.bases), None)
        if own is not None:
            return own.stays if rule.kind else KEPT.get(use.name, "a class derives from it")
        if use.name in STAY_WITH_TRAINING and self._training_stays:
            return STAY_WITH_TRAINING[use.name]
        if use.tail and not hasattr(rule.ours, use.tail[0]):
            return f"tpk's has no {use.tail[0]}"
        return self._why_call_stays(use)

    def _convert_call(self, call: cst.Call, use: Use, rule: Rule) -> None:
        more: dict[str, str] = {}
        given = bound(call.args, use.value) or {}
        if rule.to == "TrainConfig":
            more = self._more_for_config(call, given)
            self.edits.change(call, _without_none)
        elif use.name == "PredictConfig" and "input_names" not in given:
            more = {"input_names": _names_of_signature(given.get("input_signature")) or ""}
        self.edits.change(call, functools.partial(rebind, rule=rule, theirs=use.value, more=more))

    def _more_for_config(self, call: cst.Call, given: Mapping[str, cst.BaseExpression]) -> dict[str, str]:
        more = self.log.options(call)
        several = any(each.name in SEVERAL_DEVICES for each in self.uses)
        if several and "steps_per_epoch" not in given:
            data = given.get("dataflow")
            if isinstance(data, cst.Name):
                more["steps_per_epoch"] = f"len({data.value})"
            else:
                self._mark(call, "pass steps_per_epoch: tpk's default divides the data among the devices")
        if not self.log.is_set:
            self._note(
                call, "the run writes its files to runs/<script>/<time>; pass run_dir to choose another directory"
            )
        return more

    def _convert_own_calls(self) -> None:
        """Convert the arguments that classes in the script pass to their tpk base, and the training call."""
        for own in self._own.values():
            bases = [base for each in own.line_of_descent() for base in each.bases if base.name in CONVERTED]
            # Without parameters of the base, the arguments are for another base class.
            if own.stays or not bases or not by_position(bases[0].value):
                continue
            use, rule = bases[0], CONVERTED[bases[0].name]
            calls = [] if any(each.has("__init__") for each in own.parents) else matchers.findall(own.node, _SUPER_INIT)
            if not own.has("__init__"):
                calls = [*calls, *(node for node in self.script.calls if self.script.class_of(node.func) is own.node)]
            for call in calls:
                reason = _why_arguments_stay(call, use, rule)
                if reason:
                    self._mark(call, f"of the arguments of {use.name}: {reason}")
                else:
                    self.edits.change(call, functools.partial(rebind, rule=rule, theirs=use.value))
        if not self._training_stays:
            for call in self.script.calls:
                if isinstance(call.func, cst.Attribute) and call.func.attr.value == "train_with_defaults":
                    options = self.log.options(call)
                    self.edits.change(call, lambda updated, options=options: _with_options(updated, options))

    def _tell_of_predictors(self) -> None:
        trains = any(use.name in TRAINING for use in self.uses)
        for node in self.script.attributes:
            if trains and not self._training_stays and node.attr.value == "get_predictor":
                self._note(node, "get_predictor: predictors of tpk reject arrays that would lose precision when cast")

    # Convert the log.

    def _convert_log(self) -> None:
        trains = any(use.name in TRAINING for use in self.uses)
        kept = self.log.stays or (self._training_stays if trains else "")
        if kept:
            for use in self.log.uses:
                self._keep(use, f"logger: {kept}")
            return
        self.log.convert(self.edits, self.imports)
        for node, text in self.log.remarks():
            self._note(node, text)

    # Convert names of TensorFlow and NumPy.

    def _convert_tensorflow(self, occurrence: Occurrence, written: tuple[str, ...]) -> None:
        if occurrence.node in self._handled:
            self.imports.replaced(occurrence)
            return
        own, is_v1 = self._called_here(occurrence)
        tf = own or self.imports.tensorflow_name()
        is_v1 = is_v1 if own else self.imports.tensorflow_is_v1
        call = self.script.call_of.get(occurrence.node)
        arguments = None
        if call is not None and not any(arg.star for arg in call.args):
            names = [arg.keyword.value for arg in call.args if arg.keyword is not None]
            arguments = len(call.args) - len(names), names
        found = foreign.tensorflow_name(written, is_v1, arguments)
        names = written[2:] if written[:2] == ("compat", "v1") else written
        if found.mark:
            self._mark(occurrence.node, found.mark)
            self.imports.stays(occurrence)
            return
        if any(names[: len(module)] == module for module in self._modules_in_use):
            found = attrs.evolve(found, code=".".join(["tf1", *names[: found.length]]), note="its module is used")
        if getattr(self.script.function(occurrence.node), "name", cst.Name("_")).value not in ("inputs", "_get_inputs"):
            self._want_behaviour(names)
        is_in_function = self.script.function(occurrence.node) is not None
        if call is not None and not is_in_function and names[0] not in OUTSIDE_OF_GRAPHS:
            self.imports.want_tensorflow1 = True
        if found.code is None and own:
            self.imports.stays(occurrence)
            return
        code = found.code or ".".join(["{tf}", *written[: found.length]])
        if code.startswith("tf1"):
            self.imports.need("import tpk_tensorflow1 as tf1")
            self._note(
                occurrence.node, f"{'.'.join(['tf', *names[: found.length]])} comes from tpk_tensorflow1: {found.note}"
            )
        elif code.startswith("tpk."):
            self.imports.need("import tpk")
        self.imports.replaced(occurrence)
        self.edits.put(occurrence.prefix(found.length - len(written) + len(occurrence.rest)), code.format(tf=tf))

    def _called_here(self, occurrence: Occurrence) -> tuple[str, bool]:
        """Return the name of TensorFlow at the place of a name that comes from there; and whether it is the v1 API."""
        if occurrence.binding in ("tensorflow", "tensorflow.compat.v1"):
            return occurrence.root.value, occurrence.binding != "tensorflow"
        return "", False

    @functools.cached_property
    def _modules_in_use(self) -> list[tuple[str, ...]]:
        """The modules of TensorFlow 1 that are used as objects: all their names must come from there."""
        modules = []
        for _, written in self.tensorflow:
            names = written[2:] if written[:2] == ("compat", "v1") else written
            if names and foreign.tensorflow_name(written, False).is_module:
                modules.append(names)
        return modules

    def _want_behaviour(self, names: tuple[str, ...]) -> None:
        if names[:1] == ("disable_v2_behavior",):
            self._switches_itself = True
        if {".".join(names[:1]), ".".join(names[:2])} & OUTSIDE_OF_TRAININGS:
            self.imports.want_tensorflow1 = True

    def _convert_numpy(self, occurrence: Occurrence) -> None:
        written = tuple(occurrence.path.split("."))[1:]
        found = foreign.numpy_name(written) if written else foreign.Found(None, 0)
        if found.code is None:
            self.imports.stays(occurrence)
            return
        if found.note:
            self.imports.need("from tpk_tensorflow1.older import numpy as numpy1")
            self._note(occurrence.node, f"np.{written[0]} comes from tpk_tensorflow1: {found.note}")
        np = occurrence.root.value if occurrence.binding == "numpy" else self.imports.numpy_name()
        # `np` itself may be used elsewhere, so its import is kept.
        if occurrence.binding == "numpy":
            self.imports.stays(occurrence)
        else:
            self.imports.replaced(occurrence)
        self.edits.put(occurrence.prefix(len(occurrence.rest) - len(written) + 1), found.code.format(np=np))

    def _look_for_strings(self) -> None:
        for call in self.script.calls:
            name = call.func.attr.value if isinstance(call.func, cst.Attribute) else getattr(call.func, "value", "")
            if (
                name in ("import_module", "__import__")
                and call.args
                and isinstance(call.args[0].value, cst.SimpleString)
            ):
                module = str(call.args[0].value.evaluated_value)
                if package_of(module) in ("tensorpack",) or module.startswith("tensorflow.contrib"):
                    self._mark(call, f"{module} is imported through a string")
            if name == "set_chief_only":
                self._mark(call, "callbacks of tpk have no set_chief_only: set chief_only instead")
        if any(each.attr.value in ("value", "dims") for each in self.script.attributes):
            # `.value` of a dimension, which is now a plain number.
            self.imports.want_tensorflow1 |= bool(self.tensorflow)

    # Keep, replace and report.

    def _replace(self, use: Use, code: str) -> None:
        self.imports.need("import tpk")
        self.edits.put(use.node, code)

    def _keep(self, use: Use, reason: str) -> None:
        if use.module == "tfutils.common" and self.script.function(use.node) is None:
            self.imports.want_tensorflow1 = True  # It looks for objects in the default graph.
        self.imports.keep(use.occurrence, reason, use.name)
        if use.occurrence.binding == "tensorpack" and use.occurrence.root.value == "tensorpack":
            self.edits.put(use.occurrence.root, "tpk_tensorpack")
        self._note(use.node, f"{use.name} still comes from tpk_tensorpack{f': {reason}' if reason else ''}")

    def _note(self, node: cst.CSTNode, text: str) -> None:
        if not any(each.text == text for each in self.notes):
            self.notes.add(Note(self.script.line(node), text))

    def _mark(self, node: cst.CSTNode, text: str) -> None:
        mark = Note(self.script.line(node), text)
        if mark not in self.marks:
            self.marks.add(mark)
            self.edits.mark(self.script.statement(node), text)


def _member(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        try:
            return importlib.import_module(f"{module.__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith("tpk_tensorpack"):
                raise AttributeError(f"tpk_tensorpack has no {module.__name__}.{name}") from None
            raise


def _same_in_tpk(value: Any) -> str | None:
    """Return tpk's name for an object of tpk, or None for other objects."""
    name = getattr(value, "__name__", "")
    return name if callable(value) and getattr(tpk, name, None) is value else None


def _fits(use: Use, rule: Rule) -> bool:
    """Return whether the imported object is the one that the rule is for."""
    if use.module.startswith("utils"):
        return False
    if inspect.isclass(use.value) and inspect.isclass(rule.ours):
        return issubclass(use.value, rule.ours) or use.name in TRAINING | REWRITTEN
    return callable(use.value)


def _why_arguments_stay(call: cst.Call, use: Use, rule: Rule) -> str:
    if takes_any_number(use.value):
        return ""
    given = bound(call.args, use.value)
    if given is None:
        return "its arguments are unknown"
    known = {*inspect.signature(rule.ours).parameters, *rule.dropped}
    for argument in given:
        if argument in rule.kept_with:
            return f"{argument}: {rule.kept_with[argument]}"
        if rule.renamed.get(argument, argument) not in known:
            return f"tpk's has no argument {argument}"
    return _why_values_stay(rule.name, given)


def _why_values_stay(name: str, given: Mapping[str, cst.BaseExpression]) -> str:
    match name:
        case "AutoResumeTrainConfig" if not _is_name(given.get("always_resume", cst.Name("True")), "True"):
            return "always_resume is not True"
        case "MapData" if not isinstance(given.get("func"), cst.Lambda):
            return "its function gets a copy of the datapoint that it may change"
        case "PredictConfig" if "session_init" not in given:
            return "it has no session_init, so its variables keep their initial values"
        case "PredictConfig" if (
            "input_names" not in given and _names_of_signature(given.get("input_signature")) is None
        ):
            return "it feeds all inputs; tpk's feeds only those that the outputs need"
        case "ScalarStats" if not all(isinstance(each, cst.SimpleString) for each in _elements(given.get("names"))):
            return "it keeps name scopes, and the names are not literals"
        case "ScalarStats" if any("/" in str(text_of(each)) for each in _elements(given.get("names"))):
            return "it keeps name scopes"
        case "SyncMultiGPUTrainerReplicated" if "mode" in given and text_of(given["mode"]) not in _MODES:
            return "tpk's modes have other names"
        case "TowerContext" if not _is_name(given.get("is_training"), "True"):
            return "tpk.PredictTowerContext must be told whether to create variables"
    return ""


def _names_of_signature(signature: cst.BaseExpression | None) -> str | None:
    """Return the list of names in a literal signature, or None."""
    names = []
    if not isinstance(signature, cst.List | cst.Tuple):
        return None
    for spec in _elements(signature):
        name = (bound(spec.args, tensorflow.TensorSpec) or {}).get("name") if isinstance(spec, cst.Call) else None
        if not isinstance(name, cst.SimpleString):
            return None
        names.append(name.value)
    return f"[{', '.join(names)}]"


def _elements(node: cst.BaseExpression | None) -> list[cst.BaseExpression | None]:
    """Return the elements of a list or tuple, or the node itself."""
    return [each.value for each in node.elements] if isinstance(node, cst.List | cst.Tuple) else [node]


def _without_none(call: cst.Call) -> cst.Call:
    """Filter out callbacks that may be None."""
    args = []
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == "callbacks" and isinstance(arg.value, cst.List):
            elements = [_optional(each) for each in arg.value.elements]
            arg = arg.with_changes(value=arg.value.with_changes(elements=elements))
        args.append(arg)
    return call.with_changes(args=args)


def _optional(element: Any) -> Any:
    value = element.value
    if not (isinstance(value, cst.IfExp) and _is_name(value.orelse, "None")):
        return element
    several = value.with_changes(
        body=cst.List([cst.Element(value.body)]), orelse=cst.List([]), lpar=[cst.LeftParen()], rpar=[cst.RightParen()]
    )
    return cst.StarredElement(several, comma=element.comma)


def _with_options(call: cst.Call, options: dict[str, str]) -> cst.Call:
    new = [keyword(name, cst.parse_expression(code)) for name, code in options.items()]
    return with_arguments(call, [*call.args, *new]) if new else call


def _is_name(node: cst.CSTNode | None, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _is_of_logger(use: Use) -> bool:
    return use.module == "utils.logger" or (isinstance(use.value, ModuleType) and use.name == "logger")
