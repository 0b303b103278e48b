"""The house of the design, read from the code: who imports whom, what is documented."""

from __future__ import annotations

import ast
import graphlib
import inspect
import io
import re
import subprocess
import sys
import textwrap
import tokenize
import types
from pathlib import Path

import pytest

import tpk
from tpk.session import HookedSession
from tpk.train import loop

# The floors and who imports whom stand where the manual draws them.
sys.path.append(str(Path(__file__).parents[1] / "docs" / "generate"))
from floors import FLOORS, GROUND, imports_of, room_of, rooms_imported

pytestmark = pytest.mark.once

SOURCE = Path(tpk.__file__).parent

WITHOUT_TENSORFLOW = {"plugin", *GROUND, "dataflow", "cli"}
FILES = sorted(SOURCE.rglob("*.py"))

BUDGETS = {
    "callbacks": 3850,
    "checkpoint": 1280,
    "cli": 1850,
    "dataflow": 3450,
    "graph": 2500,
    "input_source": 1550,
    "layers": 1700,
    "monitors": 960,
    "plugin": 1270,
    "predict": 1080,
    "session": 760,
    "strategies": 1150,
    "testing": 1200,
    "tower": 450,
    "train": 2850,
}
"""The code lines that a room may have: without blank lines, comments and docstrings."""

PACKAGE_BUDGETS = {
    "tpk-distributed": 2700,
    "tpk-estimator": 3000,
    "tpk-keras": 700,
    "tpk-lmdb": 230,
    "tpk-tensorflow1": 3400,
    "tpk-tensorpack": 9100,
}
"""The same for packages."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_rooms_below(path):
    room = room_of(path, SOURCE)
    if room == "__init__":
        return
    used = rooms_imported(path, SOURCE) - GROUND
    wrong = {other for other in used if FLOORS[other] >= FLOORS[room]}
    assert not wrong, f"{room} (floor {FLOORS[room]}) imports {wrong}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_tensorflow_stays_out_of_the_rooms_that_need_none(path):
    if room_of(path, SOURCE) in WITHOUT_TENSORFLOW:
        top, _ = imports_of(path, for_types=False)
        assert not {name for name in top if name.split(".")[0] in ("tensorflow", "keras")}


def test_no_file_imports_itself_by_way_of_others():
    modules = {".".join(["tpk", *path.relative_to(SOURCE).with_suffix("").parts]): path for path in FILES}
    imported = {
        name: set().union(*imports_of(path, for_types=False)) & modules.keys() - {name}
        for name, path in modules.items()
    }
    # Raises an error that names a circle.
    list(graphlib.TopologicalSorter(imported).static_order())


def test_only_one_module_touches_private_names_of_tensorflow():
    internals = SOURCE / "tf_internals.py"
    others = [path for path in FILES if path != internals]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in others}
    # tpk's ProxyOptimizer keeps the optimizer that it wraps by the same name as TensorFlow's.
    private = private_names_in(internals) - {"_opt"}
    own = set().union(*map(names_defined_in, trees.values())) | {"_replace"}  # a public method of named tuples
    wrong = []
    for path, tree in trees.items():
        found = [name for names in imports_of(path) for name in names if name.startswith("tensorflow.")]
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and node.value in private:
                found.append(node.value)
            if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr):
                owner = ast.unparse(node.value)
                of_library = node.attr in private or (isinstance(node.ctx, ast.Load) and node.attr not in own)
                if of_library and owner not in ("self", "cls", "super()", "os", "subprocess", "sys"):
                    found.append(ast.unparse(node))
        wrong += [f"{path.relative_to(SOURCE)}: {name}" for name in found]
    assert not wrong


def private_names_in(path):
    """Return the private names that a file takes from objects, also by `getattr`."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {name for name in names if re.fullmatch(r"_(?!_)\w+", name)}


def names_defined_in(tree):
    """Return the names of functions, classes, variables and attributes that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def test_every_room_has_a_floor():
    assert {room_of(path, SOURCE) for path in FILES} - {"__init__"} == set(FLOORS)


def test_the_loop_is_short():
    lines, _ = inspect.getsourcelines(loop.TrainLoop.run)
    assert len(lines) < 45


def test_the_step_engine_is_short():
    lines, _ = inspect.getsourcelines(HookedSession)
    assert len(lines) <= 340


def test_the_trainer_has_one_job():
    lines, _ = inspect.getsourcelines(tpk.Trainer)
    assert len(lines) <= 350
    assert len([name for name in vars(tpk.Trainer) if not name.startswith("__") or name == "__init__"]) <= 24
    tree = ast.parse(Path(inspect.getfile(tpk.Trainer)).read_text(encoding="utf-8"))
    assert len([node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]) <= 24


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_asks_a_trainer_what_it_has(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    asked = [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) in ("getattr", "hasattr")]
    assert not {"trainer", "runner", "self.trainer", "self._trainer"} & set(asked)


@pytest.mark.parametrize(("room", "budget"), BUDGETS.items())
def test_a_room_stays_within_its_budget(room, budget):
    texts = [path.read_text(encoding="utf-8") for path in FILES if room_of(path, SOURCE) == room]
    assert sum(map(code_lines, texts)) <= budget


@pytest.mark.parametrize(("package", "budget"), PACKAGE_BUDGETS.items())
def test_a_package_stays_within_its_budget(package, budget):
    paths = (SOURCE.parents[1] / "plugins" / package / "src").rglob("*.py")
    assert sum(code_lines(path.read_text(encoding="utf-8")) for path in paths) <= budget


def code_lines(text):
    """Count the lines of a file without blank lines, comments and docstrings."""
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, node.end_lineno + 1))
    return len(lines)


@pytest.mark.parametrize("room", [*tpk._ROOMS, *tpk._NAMESPACES])
def test_a_room_can_be_pickled_with_a_function_that_mentions_it(room):
    """It could not if one of its public names were that of a file in it, which gives it another class."""
    assert type(getattr(tpk, room)) is types.ModuleType


def test_a_public_name_is_declared_once():
    declared = [name for room in (*tpk._ROOMS, *tpk._NAMESPACES) for name in getattr(tpk, room).__all__]
    assert sorted(declared) == sorted(set(declared))


@pytest.mark.parametrize("name", [name for name in tpk.__all__ if name != "__version__"])
def test_everything_public_is_there_and_documented(name):
    thing = getattr(tpk, name)
    assert inspect.getdoc(thing)
    if not inspect.isclass(thing):
        return
    for attribute, member in vars(thing).items():
        if not attribute.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            assert inspect.getdoc(getattr(thing, attribute)), f"tpk.{name}.{attribute}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_examples_in_docstrings_are_python(path):
    text = path.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        ast.parse(textwrap.dedent(block).strip().removesuffix(","))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_this"):
        tpk.nothing_like_this  # noqa: B018


def test_importing_tpk_imports_no_tensorflow_and_changes_nothing():
    code = """
import logging, random, sys, warnings
before = (list(sys.path), list(warnings.filters), random.getstate(), logging.root.handlers[:], sys.excepthook)
import tpk
after = (list(sys.path), list(warnings.filters), random.getstate(), logging.root.handlers[:], sys.excepthook)
assert before == after
heavy = {"tensorflow", "numpy", "keras", "pluggy", "attr", "tqdm"} & {name.split(".")[0] for name in sys.modules}
assert not heavy, heavy
tpk.Callback, tpk.use, tpk.StopTraining
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=280)


def test_nothing_prompts_prints_exits_or_sleeps():
    forbidden = {"input", "print", "exit", "quit", "sys.exit", "os._exit", "time.sleep", "sleep"}
    called = {
        (str(path.relative_to(SOURCE)), ast.unparse(node.func))
        for path in FILES
        if room_of(path, SOURCE) not in ("cli", "__main__")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    shells = {"breakpoint", "IPython.embed", "pdb.Pdb", "pdb.set_trace", "pdb.post_mortem", "code.interact", "getpass"}
    # A worker process whose parent is gone ends, whatever the user's code in it is doing.
    ends_itself = {("dataflow/parallel/worker_main.py", "os._exit")}
    # Only where somebody has asked for it in this very moment, and sits at a terminal.
    prompts = {("callbacks/debugging.py", name) for name in ("IPython.embed", "pdb.Pdb")}
    assert {call for call in called if call[1] in forbidden | shells} == ends_itself | prompts
