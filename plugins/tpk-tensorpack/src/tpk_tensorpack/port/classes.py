"""Convert the methods of a script's classes that derive from tensorpack's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import libcst as cst
import tensorflow
from libcst import matchers
from libcst.helpers import parse_template_expression

from tpk_tensorpack.port.arguments import bound
from tpk_tensorpack.port.edits import Edits
from tpk_tensorpack.port.names import HOOKS, INFERENCER_METHODS, MODEL_METHODS
from tpk_tensorpack.port.occurrences import Occurrence, Script, dotted, nodes_of, package_of


@attrs.define(eq=False)
class OwnClass:
    """A class in the script.

    Attributes:
        node: the class definition.
        bases: the uses of tensorpack's names that it derives from.
        kinds: the kinds of these bases, by their names in tensorpack.
        parents: its base classes in this script.
        stays: why it keeps its tensorpack base; empty if it is converted.
    """

    node: cst.ClassDef
    bases: list[Any] = attrs.field(factory=list)
    kinds: dict[str, str] = attrs.field(factory=dict)
    parents: list[OwnClass] = attrs.field(factory=list)
    stays: str = ""

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.node.name.value

    def line_of_descent(self) -> Iterator[OwnClass]:
        """Yield the class and its ancestors in this script."""
        yield self
        for parent in self.parents:
            yield from parent.line_of_descent()

    def all_kinds(self) -> set[str]:
        """Return the kinds of all its tensorpack bases."""
        return {kind for each in self.line_of_descent() for kind in each.kinds.values()}

    def methods(self) -> dict[str, cst.FunctionDef]:
        """Return its own methods."""
        body = self.node.body.body
        return {each.name.value: each for each in body if isinstance(each, cst.FunctionDef)}

    def has(self, method: str) -> bool:
        """Return whether the class or one of its ancestors in this script defines a method."""
        return any(method in each.methods() for each in self.line_of_descent())


def families(classes: Iterable[OwnClass]) -> list[list[OwnClass]]:
    """Group the classes that are related by inheritance."""
    found: list[list[OwnClass]] = []
    for each in classes:
        related = [family for family in found if any(parent in family for parent in each.parents)]
        found = [family for family in found if family not in related]
        found.append([*(member for family in related for member in family), each])
    return found


def why_it_stays(family: list[OwnClass], script: Script) -> str:
    """Return why classes keep their tensorpack bases, or an empty string if they can be converted."""
    parents = {id(parent) for each in family for parent in each.parents}
    for each in family:
        kinds = each.all_kinds()
        if not all(kinds):
            return f"{each.name} derives from {', '.join(name for name, kind in each.kinds.items() if not kind)}"
        if len(kinds - {"same", "flow"}) > 1:
            return f"{each.name} has bases of several kinds"
        for kind, why in (
            ("callback", _of_callback),
            ("inferencer", _of_inferencer),
            ("model", _of_model),
            ("flow", _of_flow),
        ):
            if kind not in kinds:
                continue
            reason = why(each, script)
            if not reason and kind == "model" and id(each) not in parents:
                missing = [name for name in MODEL_METHODS if not each.has(name)]
                reason = f"it has no {missing[0]}" if missing else ""
            if reason:
                return f"{each.name}: {reason}"
        if "trainer" in kinds and each.has("_setup_graph"):
            return f"{each.name} overrides _setup_graph"
        if "trainer" in kinds and _runs_several_times(each):
            return f"{each.name}: steps run hooked_sess several times, and each run counts in global_step"
    return ""


def _runs_several_times(each: OwnClass) -> bool:
    """Return whether a step of a trainer seems to run `hooked_sess` more than once."""
    runs = [
        node
        for method in each.methods().values()
        for node in nodes_of(method, cst.Attribute)
        if node.attr.value == "run" and _is_of_self(node.value, "hooked_sess")
    ]
    loops = [loop for kind in (cst.For, cst.While, cst.CompFor) for loop in nodes_of(each.node, kind)]
    return len(runs) > 1 or any(node in list(nodes_of(loop, cst.Attribute)) for loop in loops for node in runs)


def _of_callback(each: OwnClass, script: Script) -> str:
    methods = each.methods()
    for name in HOOKS:
        if name in methods and f"_{name}" in methods:
            return f"it has both {name} and _{name}"
        method = methods.get(f"_{name}")
        if method is None:
            continue
        params = method.params
        # Hooks that get the trainer from tpk take no argument in tensorpack.
        wanted = 0 if HOOKS[name] == ("trainer",) else len(HOOKS[name])
        if (
            len(params.params) - 1 != wanted
            or params.kwonly_params
            or isinstance(params.star_arg, cst.Param)
            or params.star_kwarg
        ):
            return f"_{name} has different arguments"
    fetching = methods.get("_before_run")
    if fetching is not None:
        for returned in nodes_of(fetching, cst.Return):
            if any(True for _ in nodes_of(returned, cst.SimpleString)):
                return "_before_run returns names of tensors"
    if matchers.findall(each.node.body, matchers.Name("name_scope")):
        own = [node for node in nodes_of(each.node, cst.Attribute) if _is_of_self(node, "name_scope")]
        if own or any(_assigns(statement, "name_scope") for statement in each.node.body.body):
            return "it sets name_scope"
    for attribute in ("_enable_before_train", "_readable_name"):
        if any(_assigns(statement, attribute) for statement in each.node.body.body):
            return f"it sets {attribute}"
    return ""


def _of_inferencer(each: OwnClass, script: Script) -> str:
    for name in INFERENCER_METHODS:
        if not each.has(f"_{name}"):
            return f"it does not define _{name}, which tpk requires"
    after = each.methods().get("_after_inference")
    if after is not None and not any(returned.value is not None for returned in nodes_of(after, cst.Return)):
        return "_after_inference does not return statistics"
    return ""


def _of_model(each: OwnClass, script: Script) -> str:
    methods = each.methods()
    for name in ("_get_inputs", "_build_graph", "_get_optimizer", "get_input_signature", "get_optimizer"):
        if name in methods:
            return f"it has {name}"
    if any(_is_of_self(node, "input_names") for node in nodes_of(each.node, cst.Attribute)):
        return "it uses input_names"
    if any(isinstance(node.attr, cst.Name) and node.attr.value == "get_optimizer" for node in script.attributes):
        return "get_optimizer is called, which returns the same optimizer each time"
    return ""


def _of_flow(each: OwnClass, script: Script) -> str:
    if each.has("get_data") or any(node.attr.value == "get_data" for node in script.attributes):
        return "get_data is used"
    return ""


def convert_class(each: OwnClass, script: Script, edits: Edits, tf: str, roots: set[str]) -> None:
    """Convert the methods of a class to tpk's.

    Args:
        each: the class.
        script: the script that contains the class.
        edits: collects the changes.
        tf: the name of TensorFlow in the converted script.
        roots: the names that refer to TensorFlow in the original script.
    """
    kinds = each.all_kinds()
    if "callback" in kinds:
        _convert_callback(each, script, edits, tf, roots)
    if "inferencer" in kinds:
        _convert_inferencer(each, edits)
    if "model" in kinds:
        for node in nodes_of(each.node, cst.Attribute):
            if _is_of_self(node, "training"):
                edits.put(node, "tpk.get_current_tower_context().is_training")


def _convert_callback(each: OwnClass, script: Script, edits: Edits, tf: str, roots: set[str]) -> None:
    for name, method in each.methods().items():
        hook = name.removeprefix("_")
        if not name.startswith("_") or hook not in HOOKS:
            continue
        _rename(method, hook, edits)
        for parameter, now in zip(method.params.params[1:], HOOKS[hook], strict=False):
            _rename_parameter(method, parameter, now, script, edits)
        if hook == "setup_graph" and _adds_ops(method, roots):
            edits.change(method, lambda updated: _in_name_scope(updated, tf))
    for statement in each.node.body.body:
        if _assigns(statement, "_chief_only"):
            for target in nodes_of(statement, cst.AssignTarget):
                edits.put(target.target, "chief_only")
    for node in nodes_of(each.node, cst.Attribute):
        name = node.attr.value
        hook = name.removeprefix("_")
        is_super = matchers.matches(node.value, matchers.Call(func=matchers.Name("super")))
        if _is_of_self(node, "graph"):
            edits.put(node, "self.trainer.graph")
        elif _is_of_self(node, "_chief_only"):
            edits.put(node, "self.chief_only")
        elif name.startswith("_") and hook in HOOKS and (is_super or _is_of_self(node)):
            edits.change(node, lambda updated, hook=hook: updated.with_changes(attr=cst.Name(hook)))
            call = script.parent(node)
            defined = any(f"_{hook}" in other.methods() for other in _after(each, is_super))
            if HOOKS[hook] == ("trainer",) and isinstance(call, cst.Call) and not call.args and not defined:
                edits.change(
                    call, lambda updated: updated.with_changes(args=[cst.Arg(cst.parse_expression("self.trainer"))])
                )
        elif _is_of_self(node, "get_tensors_maybe_in_tower"):
            call = script.parent(node)
            if isinstance(call, cst.Call) and len(call.args) == 1:
                edits.change(call, _finding_tensors)
        elif _is_of_self(node, "get_current_value"):
            call = script.parent(node)
            if isinstance(call, cst.Call) and not call.args:
                edits.put(call, "self.param.get_value()")


def _after(each: OwnClass, is_super: bool) -> list[OwnClass]:
    """Return the classes in this script in which a method may be defined."""
    line = list(each.line_of_descent())
    return line[1:] if is_super else line


def _finding_tensors(call: cst.Call) -> cst.BaseExpression:
    code = "[tpk.find_tensor(self.trainer, name) for name in {names}]"
    return parse_template_expression(code, names=call.args[0].value)


def _adds_ops(method: cst.FunctionDef, roots: set[str]) -> bool:
    """Return whether a method calls TensorFlow, other than to get the default graph."""
    calls = [node.func for node in nodes_of(method, cst.Call) if isinstance(node.func, cst.Attribute)]
    return any(package_of(dotted(func)) in roots and func.attr.value != "get_default_graph" for func in calls)


def _in_name_scope(method: cst.FunctionDef, tf: str) -> cst.FunctionDef:
    """Move the body of a method into the name scope that tensorpack would create."""
    template = cst.parse_statement(f"with {tf}.name_scope(type(self).__name__):\n    pass\n")
    assert isinstance(template, cst.With)
    body = method.body
    documented = bool(body.body) and matchers.matches(
        body.body[0], matchers.SimpleStatementLine(body=[matchers.Expr(value=matchers.SimpleString())])
    )
    first, rest = (body.body[:1], body.body[1:]) if documented else ((), body.body)
    scope = template.with_changes(body=template.body.with_changes(body=rest))
    return method.with_changes(body=body.with_changes(body=[*first, scope]))


def _convert_inferencer(each: OwnClass, edits: Edits) -> None:
    for name, method in each.methods().items():
        public = name.removeprefix("_")
        if not name.startswith("_") or public not in INFERENCER_METHODS:
            continue
        _rename(method, public, edits)
        if public != "get_fetches":
            continue
        edits.change(
            method.params,
            lambda updated: updated.with_changes(
                params=[
                    updated.params[0].with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))),
                    cst.Param(cst.Name("tower")),
                ]
            ),
        )
        for returned in nodes_of(method, cst.Return):
            edits.change(returned, _fetching)


def _fetching(returned: cst.Return) -> cst.Return:
    if returned.value is None:
        return returned
    code = "[tower.get_tensor(name) for name in {names}]"
    return returned.with_changes(value=parse_template_expression(code, names=returned.value))


def signature_of_placeholders(each: OwnClass, occurrences: Iterable[Occurrence], script: Script) -> dict[cst.Call, str]:
    """Return the calls of `tf.placeholder` in a model's inputs, each with why it cannot be a `tf.TensorSpec`."""
    found = {}
    inputs = each.methods().get("inputs")
    for occurrence in occurrences:
        if occurrence.path.split(".")[-1] != "placeholder" or inputs is None:
            continue
        call = script.parent(occurrence.node)
        if isinstance(call, cst.Call) and any(ancestor is inputs for ancestor in script.ancestors(call)):
            has_name = "name" in (bound(call.args, tensorflow.compat.v1.placeholder) or ())
            found[call] = "" if has_name else "an input has no name"
    return found


def as_tensor_spec(call: cst.Call, tf: str) -> cst.BaseExpression:
    """Return the `tf.TensorSpec` for a call of `tf.placeholder`."""
    given = {"shape": cst.Name("None"), **(bound(call.args, tensorflow.compat.v1.placeholder) or {})}
    spec = parse_template_expression(f"{tf}.TensorSpec({{shape}}, {{dtype}}, {{name}})", **given)
    return spec.with_changes(lpar=call.lpar, rpar=call.rpar)


def _rename(method: cst.FunctionDef, name: str, edits: Edits) -> None:
    edits.change(method, lambda updated: updated.with_changes(name=cst.Name(name)))


def _rename_parameter(method: cst.FunctionDef, parameter: cst.Param, now: str, script: Script, edits: Edits) -> None:
    """Rename a parameter to the hook's name for it, because hooks receive their arguments by name."""
    old = parameter.name.value
    if old == now:
        return
    edits.change(parameter, lambda updated: updated.with_changes(name=cst.Name(now)))
    for node in nodes_of(method.body, cst.Name):
        if node.value == old and any(getattr(each, "node", None) is parameter for each in script.assignments(node)):
            edits.change(node, lambda updated: updated.with_changes(value=now))


def _is_of_self(node: cst.CSTNode, attribute: str | None = None) -> bool:
    return (
        isinstance(node, cst.Attribute)
        and isinstance(node.value, cst.Name)
        and node.value.value == "self"
        and attribute in (None, node.attr.value)
    )


def _assigns(statement: cst.CSTNode, name: str) -> bool:
    return any(
        isinstance(target.target, cst.Name) and target.target.value == name
        for target in nodes_of(statement, cst.AssignTarget)
    )
