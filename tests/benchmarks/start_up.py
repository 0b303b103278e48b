"""How long `import tpk`, `tpk plugins` and `tpk --help` take, and that none imports TensorFlow.

python tests/benchmarks/start_up.py
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import time

import attrs


@attrs.frozen
class Case:
    """What is timed: a Python program, and how many seconds it may take, with or without a bare interpreter's."""

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
    Case("tpk --help, whole process", "from tpk.cli.main import main; main(['--help'])", 0.5),
)
THEN_LOOK = "; import sys; print('TensorFlow', 'is' if 'tensorflow' in sys.modules else 'is not', 'imported')"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="processes of each (default: %(default)s)")
    args = parser.parse_args()

    for case in CASES:  # Its run writes what bytecode there is to write, too.
        if not run(case.program + THEN_LOOK).endswith("TensorFlow is not imported\n"):
            sys.exit(f"{case.title}: TensorFlow is imported")
    load = os.getloadavg()[0]
    rounds = [{case: Seconds.of(case.program) for case in CASES} for _ in range(args.repeats)]
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} at the start; "
        f"medians of {args.repeats} processes each; TensorFlow is not imported\n"
    )
    print(f"{'':<32}  {'wall':>6}  {'CPU':>6}")
    for case in CASES:
        less = [each[INTERPRETER] if case.less_interpreter else Seconds(0, 0) for each in rounds]
        wall = statistics.median(each[case].wall - start.wall for each, start in zip(rounds, less, strict=True))
        cpu = statistics.median(each[case].cpu - start.cpu for each, start in zip(rounds, less, strict=True))
        line = f"{case.title:<32}  {wall * 1000:>6.1f}  {cpu * 1000:>6.1f} ms"
        if case.most is not None:
            line += f"  (reach: {case.most * 1000:.0f} ms) {'ok' if wall < case.most else 'NOT REACHED'}"
        print(line)
    return 0


@attrs.frozen
class Seconds:
    """How long a process ran, and how long it computed; the difference is what it waited, for others mostly."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, program: str) -> Seconds:
        wall, cpu = time.perf_counter(), _cpu_of_children()
        run(program)
        return cls(time.perf_counter() - wall, _cpu_of_children() - cpu)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(program: str) -> str:
    """Run it in a fresh interpreter; return what it printed."""
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
