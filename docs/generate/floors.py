"""Floors of the house: what stands on what, who imports whom, and the tables of it.

`tests/test_architecture.py` holds that a room imports only rooms below it.
"""

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tpk"
FLOORS = {
    "plugin": 0,
    "errors": 0,
    "tf_internals": 0,
    "argument_checks": 0,
    "durable_files": 0,
    "hang_watcher": 0,
    "other_libraries": 0,
    "text": 0,
    "dataflow": 1,
    "graph": 2,
    "layers": 3,
    "input_source": 3,
    "tower": 3,
    "checkpoint": 4,
    "session": 4,
    "callbacks": 5,
    "monitors": 5,
    "strategies": 5,
    "predict": 5,
    "train": 6,
    "cli": 7,
    "testing": 7,
    "__main__": 8,
}
"""The floor of each room. Rooms on one floor do not import each other; all may import the modules of `GROUND`."""

GROUND = {"errors", "argument_checks", "durable_files", "hang_watcher", "other_libraries", "text"}
"""Small modules that every room may import: errors, and what needs nothing else of tpk."""

PAGES = {"cli": "../reference/command-line.md"}
"""The pages of rooms that have no page of names."""

WITHOUT_PAGE = {"tf_internals", "argument_checks", "durable_files", "hang_watcher", "other_libraries", "text"}
"""Rooms without anything public."""


def room_of(path, source=SOURCE):
    """Return the room of a file of tpk, or of a folder of them."""
    return path.relative_to(source).parts[0].removesuffix(".py")


def imports_of(path, for_types=True):
    """The modules that a file imports, also for type checkers only if that is wanted; those in functions apart."""
    top, inside = set(), set()

    def visit(node, in_function):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not for_types:
                continue
            target = inside if in_function else top
            if isinstance(child, ast.Import):
                target.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: a relative import"
                target.add(child.module)
                if child.module == "tpk":
                    target.update(f"tpk.{alias.name}" for alias in child.names)
            visit(child, in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    visit(ast.parse(path.read_text(encoding="utf-8")), False)
    return top, inside


def rooms_imported(path, source=SOURCE):
    """Return the other rooms that a file imports at run time, at its top or in a function."""
    top, inside = imports_of(path, for_types=False)
    # `from tpk import __version__` needs no room.
    return {name.split(".")[1] for name in top | inside if name.startswith("tpk.")} - {
        room_of(path, source),
        "__version__",
    }


def table_of_imports():
    """Return a table of how many files of each room import each other room, the top floor first, as Markdown."""
    rooms = rooms_from_the_top()
    imported = {room: [rooms_imported(path) for path in files_of(room)] for room in rooms}
    lines = ["| floor | room | " + " | ".join(rooms) + " |", "|---|---|" + ":-:|" * len(rooms)]
    for row, room in enumerate(rooms):
        counts = [sum(other in found for found in imported[room]) for other in rooms]
        cells = [
            "■" if other == room else str(count or ("·" if column > row else ""))
            for column, (other, count) in enumerate(zip(rooms, counts, strict=True))
        ]
        lines.append(f"| {FLOORS[room]} | {link_to(room)} | {' | '.join(cells)} |")
    return '<div class="house" markdown>\n\n' + "\n".join(lines) + "\n\n</div>"


def table_of_rooms():
    """Return a table of what lives in each room, the top floor first, as Markdown."""
    lines = ["| floor | room | what lives there | files |", "|---|---|---|---|"]
    for room in rooms_from_the_top():
        says = ast.get_docstring(ast.parse(files_of(room)[0].read_text(encoding="utf-8"))).partition("\n")[0]
        says = says.replace("``", "`")
        lines.append(f"| {FLOORS[room]} | {link_to(room)} | {says} | {len(files_of(room))} |")
    return "\n".join(lines)


def rooms_from_the_top():
    rooms = [room for room in FLOORS if room != "__main__"]
    return sorted(rooms, key=FLOORS.get, reverse=True)


def files_of(room):
    """Return the files of a room, first the one with its docstring."""
    folder = SOURCE / room
    if not folder.is_dir():
        return [folder.with_suffix(".py")]
    return [folder / "__init__.py", *sorted(set(folder.rglob("*.py")) - {folder / "__init__.py"})]


def link_to(room):
    if room in WITHOUT_PAGE:
        return f"`{room}`"
    return f"[{room}]({PAGES.get(room, f'../reference/api/{room}.md')})"
