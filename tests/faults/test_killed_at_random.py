"""Processes that are killed at random instants, and resumed: the end is that of one that never was, bit by bit.

Of the moments, half are drawn from the time that a training takes; the others are those at which the files of a
checkpoint change, and a random while after. `TPK_FAULTS=100` in the environment asks for so many kills, and half as
many preemptions by SIGTERM, in place of the short list of seeds.
"""

from __future__ import annotations

import os
import random
import signal
from itertools import count, product

import pytest
from faulty_runs import After, OnChange, assert_same_end, place

from tpk.checkpoint.files import newest_complete

pytestmark = pytest.mark.once

KINDS = list(product(("feed", "queue", "workers"), ("single", "replicated")))
SEEDS = range(len(KINDS))
KILLS, KILLS_IN_LONG_RUN, TERMINATIONS = 2, 12, 1
ASKED_FOR = int(os.environ.get("TPK_FAULTS", "0"))

short_run = pytest.mark.skipif(ASKED_FOR > 0, reason="TPK_FAULTS asks for the long run")
long_run = pytest.mark.skipif(ASKED_FOR == 0, reason="the long run is asked for by TPK_FAULTS=<number of kills>")


@short_run
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_killed_and_resumed(tmp_path, chain, seed):
    chain(tmp_path, seed, signal.SIGKILL, KILLS)


@short_run
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", (1, 2, 5))  # each input once, and both strategies
def test_preempted_and_resumed(tmp_path, chain, seed):
    chain(tmp_path, seed, signal.SIGTERM, TERMINATIONS)


@long_run
@pytest.mark.timeout(600 + 60 * ASKED_FOR)
@pytest.mark.parametrize(("signum", "number"), [(signal.SIGKILL, ASKED_FOR), (signal.SIGTERM, ASKED_FOR // 2)])
def test_so_many_times(tmp_path, chain, signum, number):
    done = 0
    for seed in count():
        if done >= number and seed >= len(SEEDS):
            break
        done += chain(tmp_path / f"{seed}", seed, signum, KILLS_IN_LONG_RUN)


@pytest.fixture
def chain(zygote, never_killed, count_hit):
    """A function that starts a training again and again until it is complete, and compares its end.

    It sends the signal `most` times at most, and returns how many times that ended the training.
    """

    def train_until_complete(run_dir, seed, signum, most):
        scenario = scenario_of(seed, signum)
        whole, seconds = never_killed(**scenario)
        hits, name = 0, f"{scenario['input']}, {scenario['strategy']}: {signal.Signals(signum).name}"
        for moment in moments(f"{seed} {signum}", seconds):
            outcome = zygote.attempt(run_dir, moment if hits < most else None, signum, **scenario)
            if outcome.status == 0:
                break
            assert outcome.signalled, outcome.log[-3000:]
            hits += 1
            if signum == signal.SIGKILL:
                assert outcome.status == -signal.SIGKILL
                count_hit(name, place(run_dir, outcome))
            else:
                check_termination(run_dir, outcome)
                count_hit(name, f"with status {outcome.status}")
        assert outcome.said[-1] == "ended"
        assert_same_end(whole, run_dir)
        zygote.assert_nothing_is_left()
        return hits

    return train_until_complete


def check_termination(run_dir, outcome):
    # The signal is the system's to handle before the training begins, and when it is over; a shell calls both 143.
    expected = {143} if "began" in outcome.said and "ending" not in outcome.said else {143, -signal.SIGTERM}
    assert outcome.status in expected, (outcome, outcome.log[-3000:])
    if outcome.status == 143 and outcome.steps:
        # No step is lost.
        assert newest_complete(run_dir).step == outcome.steps[-1]


def scenario_of(seed, signum):
    """Return what the training of a seed is like; six seeds in a row go through all inputs and strategies."""
    rng = random.Random(seed)
    kind, strategy = KINDS[seed % len(KINDS)]
    return {
        "input": kind,
        "strategy": strategy,
        "optimizer": rng.choice(["adam", "momentum"]),
        "every_k_steps": rng.choice([1, 2, 3]),
        "max_to_keep": rng.choice([1, 2, 4]),
        "best": rng.choice([1, 2]),
        "asynchronous": (seed + seed // len(KINDS) + signum) % 2 == 1,
    }


def moments(seed, seconds):
    """Draw moments without end; a training takes so many seconds."""
    rng = random.Random(f"moments {seed}")
    while True:
        if rng.random() < 0.5:
            yield After(rng.uniform(0, seconds))
        else:
            yield OnChange(rng.randint(1, 50), rng.choice([0, rng.expovariate(1000)]))
