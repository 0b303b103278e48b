from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("faulty_runs")

hits: dict[str, Counter[str]] = {}


@pytest.fixture(scope="session")
def zygote(tmp_path_factory):
    """What starts trainings that can be killed."""
    if sys.platform != "linux":
        pytest.skip("needs fork, pidfd and inotify")
    import faulty_runs

    with faulty_runs.zygote(tmp_path_factory.mktemp("zygote")) as it:
        yield it


@pytest.fixture(scope="session")
def never_killed(zygote, tmp_path_factory):
    """A function that returns the directory of a run that was never killed, and the seconds that it took."""
    known = {}

    def run_once(**scenario):
        # When files are written changes nothing but that.
        scenario["asynchronous"] = False
        key = tuple(sorted(scenario.items()))
        if key not in known:
            run_dir = tmp_path_factory.mktemp("whole")
            outcome = zygote.attempt(run_dir, None, **scenario)
            assert outcome.status == 0, outcome.log[-3000:]
            known[key] = run_dir, outcome.seconds
        return known[key]

    return run_once


@pytest.fixture(scope="session")
def count_hit():
    """A function that counts where an attempt was hit by what; the summary tells."""

    def count(what, where):
        hits.setdefault(what, Counter())[where] += 1

    return count


def pytest_terminal_summary(terminalreporter):
    for what, places in hits.items():
        listed = ", ".join(f"{number} {where}" for where, number in places.most_common())
        terminalreporter.write_line(f"{what}: {sum(places.values())} ({listed})")
