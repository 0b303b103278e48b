"""The page of errors has all of them: each class with cause and cure, and the mistakes that newcomers make."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import error_messages
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
FRAGMENTS = [words for heading in re.findall(r"^### (.+)$", PAGE, re.M) for words in re.findall(r'"(.+?)"', heading)]


@pytest.mark.parametrize("name", error_messages.error_classes())
def test_an_error_says_what_its_cause_is_and_its_cure(name):
    said = error_messages.documented(name)
    assert len(said.cause) > 20
    assert len(said.cure) > 20
    assert f"### {name}\n\n**Cause**: {said.cause}\n\n**Cure**: {said.cure}\n" in error_messages.listed()


def test_an_error_without_a_cure_is_found(monkeypatch):
    classes = {"NewError": (["TpkError"], "Something new.\n\nAttributes:\n    name: of what.")}
    monkeypatch.setattr(error_messages, "error_classes", lambda: classes)
    assert error_messages.documented("NewError") == error_messages.Documented("Something new.", "")


@functools.cache
def mistakes():
    """Return what the error of each mistake has to say; it is written there in decorators, so nothing has to be run."""
    tests = ast.parse((ROOT / "tests" / "train" / "test_first_hour.py").read_text(encoding="utf-8"))
    return {
        function.name: [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
        for function in tests.body
        if isinstance(function, ast.FunctionDef)
        for call in function.decorator_list
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "mistake"
    }


@functools.cache
def said():
    """Return all that tpk says: texts of errors, constants that they are put together of, and those of mistakes."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "src" / "tpk").rglob("*.py"))]
    nodes = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    constants = [node.value for node in nodes if isinstance(node.value, str)]
    texts = [message.text for message in error_messages.messages()]
    return [*constants, *texts, *(part for says in mistakes().values() for part in says)]


def test_what_the_page_quotes_is_what_tpk_says():
    assert len(FRAGMENTS) > 50
    assert [words for words in FRAGMENTS if not any(words in text for text in said())] == []


def test_the_mistakes_of_the_first_hour_are_explained():
    assert len(mistakes()) > 40
    every = {name: " | ".join(says) for name, says in mistakes().items()}
    assert [name for name, says in every.items() if not any(words in says for words in FRAGMENTS)] == []
