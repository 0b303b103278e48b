"""The behavior that all commands share."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys

import click
import pytest
from rich.console import Console

import tpk
from tpk.cli.main import COMMANDS, main, tpk as tpk_command
from tpk.cli.table import print_table
from tpk.text import human_duration, human_size


def paths_of(command, path=()):
    """The paths of a command and all of its subcommands."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from paths_of(command.get_command(context, name), (*path, name))


PATHS = sorted(paths_of(tpk_command))


def test_all_commands_exist():
    assert {(name,) for name in COMMANDS} <= set(PATHS)
    assert {("plugins", "show"), ("plugins", "new"), ("checkpoint", "diff"), ("checkpoint", "to-npz")} <= set(PATHS)


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_the_help_of_each_command_has_examples_and_fits_a_terminal(path, capsys):
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(" ".join(["Usage: tpk", *path]))
    _, examples = shown.split("Examples:\n")
    assert examples.strip().startswith(" ".join(["tpk", *path[:1]]))
    assert max(map(len, shown.splitlines())) <= 120
    # The short option prints the same.
    assert main([*path, "-h"]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("path", [path for path in PATHS if path], ids=" ".join)
def test_the_list_of_commands_describes_each_in_one_line(path, capsys):
    assert main([*path[:-1], "--help"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.partition("Commands:\n")[2].splitlines()]
    (said,) = [line[1] for line in lines if line and line[0] == path[-1] and len(line) > 1][:1]
    assert said[0].isupper() and not said.endswith("...")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plugns"], "No such command 'plugns'"),
        (["--quiet"], "No such option"),
        (["plugins", "--kind", "color"], "'color' is not one of 'trainer', 'strategy'"),
        (["plugins", "show"], "Missing argument 'NAME'"),
        (["plugins", "--json", "show", "x"], "write the options of 'show' after it"),
        (["checkpoint", "list"], "No such command 'list'"),
    ],
)
def test_wrong_usage_has_status_2_and_points_to_the_help(arguments, message, capsys):
    assert main(arguments) == 2
    written, errors = capsys.readouterr()
    assert written == ""
    assert message in errors and "--help' for help." in errors


def test_without_arguments_the_help_is_shown(capsys):
    assert main([]) == 0
    assert "Commands:" in capsys.readouterr().out


def test_the_module_is_the_command():
    """As in ``tpk launch -n 2 -m tpk``."""
    shown = subprocess.run([sys.executable, "-m", "tpk", "--version"], capture_output=True, text=True, timeout=280)
    assert shown.stdout == f"tpk {tpk.__version__}\n"


# Commands of packages.

GREETING = """
import click

@click.command(help="Say hello.")
@click.argument("name")
def hello(name):
    print("hello", name)
    return 3

nothing = 5
"""


@pytest.fixture
def installed(fake_distribution):
    """Install a distribution with commands, some of which are broken."""
    commands = {
        **dict.fromkeys(["hello", "doctor"], "greeting:hello"),
        "nothing": "greeting:nothing",
        "gone": "gone:gone",
    }
    fake_distribution("tpk-greeting", "1.0", entry_points={"tpk.commands": commands}, modules={"greeting": GREETING})


def test_a_package_adds_a_command(installed, capsys):
    assert main(["hello", "you"]) == 3
    assert capsys.readouterr().out == "hello you\n"
    assert main(["plugins", "show", "hello"]) == 0
    assert "from tpk-greeting 1.0" in (shown := capsys.readouterr().out) and "Usage: tpk hello [OPTIONS] NAME" in shown


def test_a_broken_command_is_listed_as_failed_and_says_why_when_it_is_called(installed, capsys):
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert "hello       Say hello.\n" in listed
    assert all(f"  {name:10}  FAILED" in listed for name in ("gone", "nothing"))
    for name, message in (("gone", "No module named 'gone'"), ("nothing", "leads to a click.Command")):
        assert main([name, "--some", "option"]) == 1
        errors = capsys.readouterr().err
        assert message in errors and "tpk-greeting 1.0" in errors


def test_a_package_cannot_replace_a_command_of_tpk(installed, capsys):
    assert main(["doctor", "--help"]) == 0
    assert "Usage: tpk doctor" in capsys.readouterr().out


def test_a_blocked_command_is_unknown(installed, capsys, monkeypatch):
    monkeypatch.setenv("TPK_BLOCK", "hello")
    assert main(["hello", "you"]) == 2
    assert "No such command 'hello'" in capsys.readouterr().err


def test_a_command_of_a_package_that_is_not_installed_names_the_package(isolated_catalog, capsys):
    assert main(["launch", "-n", "2", "train.py"]) == 2
    errors = capsys.readouterr().err
    assert "'launch' is in the package tpk-distributed" in errors and 'pip install "tpk-train[distributed]"' in errors


# Return values and errors.


@pytest.fixture
def acting(monkeypatch):
    """A function that defines what the command ``act`` does."""

    def set_act(act):
        module = sys.modules[__name__]
        monkeypatch.setattr(module, "acting_command", click.Command("act", callback=act), raising=False)
        monkeypatch.setitem(COMMANDS, "act", f"{__name__}:acting_command")

    return set_act


def raising(error):
    def act():
        raise error

    return act


def test_the_exit_status_is_the_return_value_of_the_command(acting):
    acting(lambda: 7)
    assert main(["act"]) == 7
    acting(lambda: None)
    assert main(["act"]) == 0


def test_an_error_of_tpk_is_one_line_below_the_code_that_raised_it(acting, capsys):
    acting(raising(tpk.ConfigError("no\n  such thing")))
    assert main(["act"]) == 1
    *frames, message = capsys.readouterr().err.splitlines()
    assert message == "tpk: no such thing"
    assert [line for line in frames if line.startswith("  File ")] == [frames[0]] and __file__ in frames[0]


def test_ctrl_c_has_exit_status_130(acting, capsys):
    acting(lambda: signal.raise_signal(signal.SIGINT))
    assert main(["act"]) == 130
    assert capsys.readouterr().err == "tpk: interrupted\n"


@pytest.mark.parametrize("error", [EOFError("the end of a pickle"), ZeroDivisionError(), OSError(5, "broken")])
def test_other_errors_have_a_traceback(acting, error):
    acting(raising(error))
    with pytest.raises(type(error)):
        main(["act"])


def test_a_broken_pipe_in_user_code_is_an_error(acting):
    def act():
        reader, writer = os.pipe()
        os.close(reader)
        try:
            os.write(writer, b"x")
        finally:
            os.close(writer)

    acting(act)
    with pytest.raises(BrokenPipeError):
        main(["act"])


# Completion.


def completed(monkeypatch, capsys, *words):
    monkeypatch.setenv("_TPK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["tpk", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert main([]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ch"], ["checkpoint"]),
        (["checkpoint", "to"], ["to-npz"]),
        (["runs", "--so"], ["--sort"]),
        (["plugins", "--kind", "str"], ["strategy"]),
    ],
)
def test_a_shell_completes_commands_options_and_values(monkeypatch, capsys, words, found):
    assert [line.partition(",")[2] for line in completed(monkeypatch, capsys, *words).splitlines()] == found


def test_bash_really_completes(tmp_path):
    if subprocess.run(["bash", "-c", "((BASH_VERSINFO[0] > 4))"], check=False).returncode:
        pytest.skip("there is no bash 5")
    command = tmp_path / "tpk"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m tpk "$@"\n')
    command.chmod(0o755)
    script = (
        'eval "$(_TPK_COMPLETE=bash_source tpk)"; COMP_WORDS=(tpk checkpoint sh); COMP_CWORD=2; '
        '_tpk_completion tpk; echo "${COMPREPLY[*]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    shown = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=280
    )
    assert shown.stdout == "show\n", shown.stderr


# Tables.

ROWS = [["runs/a", "failed, resumable at 7", "[?, 3]"], ["runs/bc", "finished", "x" * 60]]


def test_in_a_pipe_each_row_of_a_table_is_one_line(capsys):
    print_table(("run", "state", "shape"), ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "run      state                   shape",
        "runs/a   failed, resumable at 7  [?, 3]",
        f"runs/bc  finished                {'x' * 60}",
    ]


def test_a_table_fits_the_terminal():
    file = io.StringIO()
    print_table(
        ("run", "state", "shape"), ROWS, console=Console(file=file, force_terminal=True, width=60, color_system="256")
    )
    lines = file.getvalue().splitlines()
    plain = [click.unstyle(line) for line in lines]
    assert all(len(line) <= 60 for line in plain) and len(plain) > 3
    # Nothing is cropped, and brackets are not markup.
    assert sum(line.count("x") for line in plain) == 60 and "[?, 3]" in plain[1]
    assert "\x1b[" in file.getvalue()


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (60, ["run", "state", "epoch", "validation_error", "strategy"]),
        (54, ["run", "state", "epoch", "validation_error"]),
        (26, ["run", "state", "epoch"]),
        (19, ["run", "state"]),
    ],
)
def test_a_narrow_terminal_shows_fewer_columns_and_breaks_no_word(width, titles):
    file = io.StringIO()
    rows = [
        ["runs/a", "failed, resumable at 7", "7/10", "0.25", "parameter"],
        ["runs/b", "finished", "8/10", "0.5", "single"],
    ]
    header = ("run", "state", "epoch", "validation_error", "strategy")
    print_table(header, rows, kept=2, console=Console(file=file, width=width))
    lines = file.getvalue().splitlines()
    assert lines[0].split() == titles
    assert all(len(line) <= width for line in lines)
    words = {word for line in lines for word in line.split()}
    assert words == {word for row in (header, *rows) for cell in row[: len(titles)] for word in cell.split()}


def test_cropped_rows_are_one_line_each():
    file = io.StringIO()
    print_table(("run", "shape"), [["a" * 20, "x" * 60], ["b", "y"]], crop=True, console=Console(file=file, width=40))
    assert file.getvalue().splitlines() == [f"run{' ' * 19}shape", f"{'a' * 20}  {'x' * 17}…", f"b{' ' * 21}y"]


def test_sizes_and_durations_are_readable():
    assert [human_size(size) for size in (None, 5, 1536, 3 << 20)] == ["-", "5 B", "1.5 KiB", "3.0 MiB"]
    assert [human_duration(seconds) for seconds in (None, 1.25, 59, 3723)] == ["-", "1.25 s", "59 s", "1:02:03"]
