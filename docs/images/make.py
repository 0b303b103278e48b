"""Make the pictures of README and manual: the console of a training run, and curves by `tpk plot`.

    python docs/images/make.py          # console.svg and curves.png, beside this file; about two minutes on two cores

Both show runs of examples/digits.toml. The console is a real one in a pseudo-terminal during one of the last epochs,
without TensorFlow's messages at the start. It needs the packages of the examples, and Matplotlib.
"""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).resolve().parent
EXAMPLES = IMAGES.parents[1] / "examples"
COLUMNS, LINES = 128, 40
OF_TENSORFLOW = re.compile(r"WARNING: All log messages before absl|[IWE]\d{4} ")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
TPK = [sys.executable, "-m", "tpk"]


def main():
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(EXAMPLES, Path(directory, "examples"))
        command = ["train", "examples/digits.toml", "max_epoch=6", "run_dir=runs/batch-32"]
        recorded = record([*TPK, *command], directory)
        draw(" ".join(["$ tpk", *command]), screen_within_an_epoch(recorded), IMAGES / "console.svg")
        slower = [*TPK, "train", "runs/batch-32/config.toml", "dataflow.batch=128", "run_dir=runs/batch-128"]
        subprocess.run(slower, cwd=directory, env={**os.environ, **QUIET}, check=True, stderr=subprocess.DEVNULL)
        chosen = [f"--stat={name}" for name in ("cost", "validation_cost", "validation_error")]
        plot = [*TPK, "plot", "runs/batch-32", "runs/batch-128", *chosen, "-o", str(IMAGES / "curves.png")]
        subprocess.run(plot, cwd=directory, check=True)


def record(command, directory):
    """Return what a command writes to a terminal, as text."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.environ.update(QUIET)
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    written = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # So a pseudo-terminal ends.
            piece = b""
        if not piece:
            break
        written += piece
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{written.decode(errors='replace')}")
    return written.decode()


def screen_within_an_epoch(text):
    """Return the lines that stand on the screen when a bar was last drawn half full."""
    *_, last = re.finditer(r"\repoch \d+/\d+: +(?!0%|100%)\d+%[^\r\n]*", text)
    lines = [overwritten(line) for line in text[: last.end()].split("\n")]
    return [line for line in lines if not OF_TENSORFLOW.match(line)]


def overwritten(line):
    """Return what is seen of a line that goes back to its beginning now and then."""
    seen = ""
    for part in line.split("\r"):
        seen = part + seen[len(part) :]
    return seen.rstrip()


def draw(prompt, lines, path):
    """Write a picture of a terminal, in which a command was given."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(prompt, style="bold"))
    for line in lines:
        console.print(Text.from_ansi(line))
    # Its fonts would come from elsewhere, if whoever shows the picture allowed that.
    picture = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="tpk"), flags=re.DOTALL)
    path.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
