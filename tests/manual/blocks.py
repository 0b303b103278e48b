"""The blocks of code in the pages of the manual, and what runs them.

A page is run from top to bottom, in a directory and a namespace of its own:

- ` ```python ` is executed; what it prints is checked by the block after it, if that is ` ```text title="Output" `.
  One that is followed by ` ```text title="Error" ` has to fail, with that error: the type and the message. What
  ` ```text title="Log" ` shows has to stand in what tpk logs.
- Python files that the page links to are there, to be imported.
- a block with a file name as its title, such as ` ```python title="train.py" `, is written to that file, not run.
- ` ```bash ` has a command in each line, run in the directory: `python FILE.py` and `tpk ...` in this process, others
  by the shell. With ` ```text title="Output" ` after it, what they write has to be that.
- in what is expected, `...` stands for anything, and white space does not count.
- what stands in an HTML comment is run, too: what a page needs but need not show.
- ` <!-- not run: why --> ` in the line before it says why a block is not run; ` <!-- in a process of its own --> ` has
  the commands of a block run in new processes.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import logging
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import traceback
from itertools import takewhile
from pathlib import Path

from attrs import frozen

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?P<options>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE,
)
REMARK = re.compile(r"<!-- (?:(?P<why>not run: [^\n]+)|(?P<apart>in a process of its own)) -->\s*\Z")
LINK_TO_CODE = re.compile(r"\]\(([\w./-]+\.py)\)")
TITLE = re.compile(r'title="([^"]+)"')
RUN = ("python", "bash")
SHOWN = ("Output", "Error", "Log")
TIMEOUT = 100
INSTALLS = re.compile(
    r"\b(pip3?|uv|pipx|conda|mamba|npm|apt|apt-get|brew)\b.*\b(install|add|sync|upgrade|run|remove|uninstall)\b|\bsudo\b"
)


@frozen
class Block:
    """A block of code of a page."""

    page: Path
    line: int
    language: str
    title: str
    code: str
    why_not_run: str = ""
    is_apart: bool = False

    @property
    def is_file(self):
        return bool(self.title) and self.title not in SHOWN

    def __str__(self):
        return f"{self.page.name}:{self.line}"


def blocks_of(page):
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in FENCE.finditer(text):
        title = TITLE.search(fence["options"])
        remark = REMARK.search(text[: fence.start()])
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, fence.start("code")) + 1,
                language=fence["language"],
                title=title[1] if title else "",
                code=textwrap.dedent(fence["code"]),
                why_not_run=(remark["why"] or "") if remark else "",
                is_apart=bool(remark and remark["apart"]),
            )
        )
    return found


def run_page(page, directory):
    """Run the blocks of a page; the current directory has to be `directory`.

    Raises:
        AssertionError: if one of them does something else than the page says; it names the line.
    """
    namespace = {"__name__": "__main__"}
    for linked in LINK_TO_CODE.findall(page.read_text(encoding="utf-8")):
        shutil.copy(page.parent / linked, directory)
    blocks = blocks_of(page)
    for index, block in enumerate(blocks):
        if block.why_not_run:
            continue
        if block.is_file:
            path = directory / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
            continue
        if block.language not in RUN:
            continue
        with logged() as log:
            written, error = (run_python if block.language == "python" else run_commands)(block, namespace, directory)
        shown = list(takewhile(lambda after: after.title in SHOWN, blocks[index + 1 :]))
        check(block, {"Output": written, "Log": "\n".join(log)}, error, shown)


def check(block, found, error, shown):
    wants_error = "Error" in [each.title for each in shown]
    if error is not None and not wants_error:
        raise AssertionError(f"{block} fails:\n{found['Output']}\n{error_text(error)}") from error
    if wants_error:
        assert error is not None, f"{block} does not fail, as it should"
        found["Error"] = f"{type(error).__name__}: {error}"
    for each in shown:
        # What is shown of a log, or of an error of many lines, begins and ends anywhere.
        expected = each.code if each.title == "Output" else f"...{each.code.strip()}..."
        assert is_alike(expected, found[each.title]), f"{each} shows\n{each.code}\nbut it is\n{found[each.title]}"


def is_alike(expected, found):
    expected, found = (re.sub(r"\s+", " ", text).strip() + "\n" for text in (expected, found))
    return doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS)


@contextlib.contextmanager
def logged():
    """Within the context, the list holds what tpk logs."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("tpk")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def error_text(error):
    return "".join(traceback.format_exception(error))


def run_python(block, namespace, directory):
    """Execute the code; return what it printed, and the error that it raised, or None."""
    written = io.StringIO()
    # The lines of a traceback are those of the page.
    before = sys.argv
    code = compile("\n" * (block.line - 1) + block.code, str(block.page), "exec")
    sys.argv = [f"{block.page.stem}.py"]  # As `run_dir` is called by default.
    try:
        with contextlib.redirect_stdout(written), importing_from(directory):
            exec(code, namespace)
    except (Exception, SystemExit) as error:
        return written.getvalue(), error
    finally:
        sys.argv = before
    return written.getvalue(), None


def run_commands(block, namespace, directory):
    """Run the command of each line; return what they wrote to stdout, and the error by which the first failed."""
    written = io.StringIO()
    for command in re.sub(r"\\\n\s*", "", block.code).splitlines():
        words = shlex.split(command, comments=True)
        if not words:
            continue
        if changes_machine(command):
            raise AssertionError(f"{block} would change this machine: {command!r}. Mark the block as not run.")
        try:
            with contextlib.redirect_stdout(written), importing_from(directory):
                if not block.is_apart and words[0] == "tpk" and is_plain(command):
                    run_tpk(words[1:])
                elif not block.is_apart and words[0] == "python" and words[1].endswith(".py"):
                    run_script(directory / words[1], words[1:])
                else:
                    run_by_shell(command, written)
        except (Exception, SystemExit) as error:
            return written.getvalue(), error
    return written.getvalue(), None


def changes_machine(command):
    """Whether a command installs something, here or from a registry: a test must not, whatever the page says."""
    return bool(INSTALLS.search(command))


def is_plain(command):
    return not re.search(r"[|>&;$]", command)


def run_tpk(arguments):
    from tpk.cli.main import main

    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        status = main(arguments)
    if status:
        raise SystemExit(error.getvalue())


def run_script(path, argv):
    before = sys.argv
    sys.argv = list(argv)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = before


def run_by_shell(command, written):
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    # `tpk` of this interpreter, whether or not it is installed.
    command = f'tpk() {{ python -m tpk "$@"; }}; {command}'
    process = subprocess.Popen(
        ["bash", "-c", command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, error = process.communicate(timeout=TIMEOUT)
    except BaseException:
        # All of its group: what the shell has started would outlive it.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    written.write(output)
    if process.returncode:
        raise SystemExit(f"status {process.returncode}\n{output}\n{error}")


@contextlib.contextmanager
def importing_from(directory):
    """Within the context, files in `directory` can be imported, and are forgotten afterwards."""
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(directory)):
                del sys.modules[name]
