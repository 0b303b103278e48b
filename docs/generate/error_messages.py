"""The errors that tpk raises on purpose, read from its sources: what each class means, its cure, and all messages.

The cure of a class is in its docstring, under ``Cure:``.
"""

import ast
import functools
import html
import re
from collections import defaultdict

from attrs import frozen
from public_names import SOURCE


@frozen
class Message:
    """An error that a line of tpk raises, and its text, with `…` for what depends on the case."""

    error: str
    room: str
    text: str
    place: str


@functools.cache
def messages():
    """Return all of them whose text can be read there."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        errors = error_classes()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_error = isinstance(node, ast.Call) and name_of(node.func) in errors
            if text := text_of(node.args[0]) if is_error and node.args else "":
                room = place.parts[0].removesuffix(".py")
                found.append(Message(name_of(node.func), room, text, f"{place}:{node.lineno}"))
    return tuple(found)


@functools.cache
def error_classes():
    """Return the bases and the documentation of each error class of tpk, by its name."""
    every = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                every[node.name] = ([ast.unparse(base) for base in node.bases], ast.get_docstring(node) or "")
    known = {"TpkError", "StopTraining", "Preempted"}
    while more := {name for name, (bases, _) in every.items() if known & set(bases)} - known:
        known |= more
    return {name: every[name] for name in every if name in known}


def name_of(function):
    return ast.unparse(function).rpartition(".")[2]


def text_of(node):
    """Return the text of an expression, with `…` for what is not written there; empty if nothing is."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else "…"
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(each) if isinstance(each, ast.Constant) else "…" for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    if isinstance(node, ast.IfExp):
        return f"{text_of(node.body)}"
    return ""


def listed():
    """Return the errors with their causes and cures, then all messages, as Markdown."""
    return f"## Each error: cause and cure\n\n{causes_and_cures()}\n\n## All messages\n\n{all_messages()}"


def causes_and_cures():
    """Return a section for each error class, in the order in which they are declared, as Markdown."""
    parts = []
    for name in error_classes():
        said = documented(name)
        parts.append(f"### {name}\n\n**Cause**: {said.cause}\n\n**Cure**: {said.cure}\n")
    return "\n".join(parts)


@frozen
class Documented:
    """The documentation of an error class: when it is raised, and what to do; empty if it does not."""

    cause: str
    cure: str


def documented(name):
    _, documentation = error_classes()[name]
    paragraphs = [" ".join(each.split()).replace("``", "`") for each in documentation.split("\n\n")]
    cures = [each.removeprefix("Cure: ") for each in paragraphs if each.startswith("Cure: ")]
    return Documented(cause=paragraphs[0], cure="".join(cures))


def all_messages():
    """Return the messages as Markdown: by error, then by room."""
    by_error = defaultdict(lambda: defaultdict(list))
    for message in messages():
        by_error[message.error][message.room].append(message.text)
    lines = []
    for error in error_classes():
        if error in by_error:
            lines += ["", f"### Messages of {error}", ""]
        for room, texts in sorted(by_error[error].items()):
            lines += [f"*{room}*", "", *(f"- {escaped(text)}" for text in sorted(set(texts), key=str.lower)), ""]
    return "\n".join(lines)


def escaped(text):
    """Return text in which nothing is Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]#|])", r"\\\1", html.escape(" ".join(text.split()), quote=False))
