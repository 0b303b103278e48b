"""Processes that are killed at random instants, and resumed: the end is that of one that never was, bit by bit.

Of the moments, half are drawn from the time that a training takes; the others are those at which the files of a
checkpoint change, and a random while after. `TPK_FAULTS=100` in the environment asks for so many kills, and as many
preemptions by SIGTERM, in place of the short list of seeds.
"""

from __future__ import annotations

import os
import random
import signal
from itertools import count, product

import pytest
from faulty_runs import After, OnChange, assert_same_end, place

from tpk.session.checkpoint_files import newest_complete

KINDS = list(product(("feed", "queue", "workers"), ("single", "replicated")))
KILLS, TERMINATIONS = 4, 2
ASKED_FOR = int(os.environ.get("TPK_FAULTS", 0))
SEEDS = range(2 * len(KINDS))


def scenario_of(seed):
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
        # The second six have the other way of writing.
        "asynchronous": (seed + seed // len(KINDS)) % 2 == 1,
    }


def moments(seed, seconds):
    """Draw moments without end; a training takes so many seconds."""
    rng = random.Random(f"moments {seed}")
    while True:
        if rng.random() < 0.5:
            yield After(rng.uniform(0, seconds))
        else:
            yield OnChange(rng.randint(1, 200), rng.choice([0, rng.expovariate(1000)]))


def chain(zygote, never_killed, run_dir, seed, signum, most, count_hit):
    """Start a training again and again until it is complete, the signal having been sent `most` times at most.

    Returns:
        How many times it was ended by the signal.
    """
    scenario = scenario_of(seed)
    whole, seconds = never_killed(**scenario)
    hits, name = 0, signal.Signals(signum).name
    for moment in moments(seed, seconds):
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
    assert "ended" in outcome.said
    assert_same_end(whole, run_dir)
    zygote.assert_nothing_is_left()
    return hits


def check_termination(run_dir, outcome):
    # A shell calls both 143. The signal is the system's to handle before the training begins, and when it is over.
    if "began" in outcome.said and "ending" not in outcome.said:
        assert outcome.status == 143, (outcome, outcome.log[-3000:])
    assert outcome.status in (143, -signal.SIGTERM), (outcome, outcome.log[-3000:])
    if outcome.status == 143 and outcome.steps:
        # Nothing is lost.
        assert newest_complete(run_dir).step == outcome.steps[-1]


@pytest.mark.timeout(600)
@pytest.mark.skipif(ASKED_FOR > 0, reason="TPK_FAULTS asks for the long run")
@pytest.mark.parametrize("seed", SEEDS[::2] if os.environ.get("CI") is None else SEEDS)
def test_killed_and_resumed(tmp_path, zygote, never_killed, count_hit, seed):
    chain(zygote, never_killed, tmp_path / "run", seed, signal.SIGKILL, KILLS, count_hit)
