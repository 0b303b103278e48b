"""How long `import tpk` and `tpk plugins` take, and that neither imports TensorFlow.

python tests/benchmarks/start_up.py
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

import attrs


@attrs.frozen
class Case:
    """What is timed: a Python program, and how long it may take besides the start of the interpreter, or with it."""

    title: str
    program: str
    most: float | None = None
    less_interpreter: bool = False


INTERPRETER = Case("python -c pass", "pass")
CASES = (
    INTERPRETER,
    Case("import tpk, less python -c pass", "import tpk", 0.060, less_interpreter=True),
    # What the console script does; the script itself may not be installed.
    Case("tpk plugins, whole process", "from tpk.cli.main import main; main(['plugins'])", 0.5),
)
TENSORFLOW_CHECK = "; import sys; sys.stderr.write('imported' * ('tensorflow' in sys.modules))"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="processes of each (default: %(default)s)")
    args = parser.parse_args()

    for case in CASES:  # Its run writes what bytecode there is to write, too.
        if run(case.program + TENSORFLOW_CHECK).stderr:
            sys.exit(f"TensorFlow is imported by: {case.program}")
    load_before = os.getloadavg()[0]
    rounds = [{case: seconds(case.program) for case in CASES} for _ in range(args.repeats)]
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load_before:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after; medians of {args.repeats} processes; TensorFlow is not imported\n"
    )
    for case in CASES:
        times = [each[case] - each[INTERPRETER] * case.less_interpreter for each in rounds]
        median = statistics.median(times)
        reach = "" if case.most is None else f"  (reach: {case.most * 1000:.0f} ms)"
        verdict = "" if case.most is None else " ok" if median < case.most else " NOT REACHED"
        print(f"{case.title:<32} {median * 1000:>6.1f} ms{reach}{verdict}")
    return 0


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


def seconds(program: str) -> float:
    start = time.perf_counter()
    run(program)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
