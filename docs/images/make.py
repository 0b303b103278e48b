"""Make the pictures of README and manual: the console of a training run, and curves by `tpk plot`.

    python docs/images/make.py          # console.svg and curves.png, beside this file; about two minutes on two cores

Both show runs of the network of examples/digits.toml. The console is what a pseudo-terminal shows during the last epoch
of a real run, without TensorFlow's messages at the start. It is narrow, and of the statistics it has only the most
important one, so that a phone shows its lines in a legible size. It needs the packages of the examples, and Matplotlib.
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
COLUMNS, LINES = 72, 40
OF_TENSORFLOW = re.compile(r"WARNING: All log messages before absl|[IWE]\d{4} ")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
TPK = [sys.executable, "-m", "tpk"]
RUN_FILE = """\
model = "digits_convnet:DigitsModel"
dataflow = {use = "digits_convnet:training_data", batch = 8}
trainer = "single"
max_epoch = 5
seed = 0
run_dir = "runs/digits"

[[callbacks]]
use = "ModelSaver"

[[callbacks]]
use = "InferenceRunner"
input = {use = "digits_convnet:validation_data"}
infs = [{use = "tpk:ClassificationError", summary_name = "val_error"}]

[[monitors]]
use = "ScalarPrinter"
whitelist = ["val_error"]
"""


def main():
    with tempfile.TemporaryDirectory() as directory:
        os.symlink(EXAMPLES, Path(directory, "examples"))
        os.symlink(EXAMPLES / "digits_convnet.py", Path(directory, "digits_convnet.py"))
        Path(directory, "digits.toml").write_text(RUN_FILE, encoding="utf-8")
        recorded = record([*TPK, "train", "digits.toml"], directory)
        draw("$ tpk train digits.toml", screen_within_the_last_epoch(recorded), IMAGES / "console.svg")
        for batch in (32, 128):
            options = ["max_epoch=6", f"dataflow.batch={batch}", f"run_dir=runs/batch-{batch}"]
            train = [*TPK, "train", "examples/digits.toml", *options]
            subprocess.run(train, cwd=directory, env={**os.environ, **QUIET}, check=True, stderr=subprocess.DEVNULL)
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


def screen_within_the_last_epoch(text):
    """Return the lines on the screen when the bar of the last epoch was last drawn before its end."""
    *_, last = re.finditer(r"\repoch (\d+)/\1: +(?!0%|100%)\d+%[^\r\n]*", text)
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
