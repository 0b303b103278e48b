"""Trainings that a real SLURM starts, on two hosts."""

from __future__ import annotations

import os
import pickle
import re
import sys
from pathlib import Path

import pytest
import slurms

pytestmark = [
    pytest.mark.once,
    pytest.mark.parametrize("network", [2], indirect=True),
    pytest.mark.skipif(os.environ.get("TPK_HOSTS") != "all", reason="`nox -s hosts` runs this"),
    pytest.mark.skipif(bool(slurms.missing_programs()), reason="needs slurm-wlm and munge: Debian has them"),
]

TRAIN = """
import os, pickle, sys, time
sys.path.insert(0, {here!r})
import collective_trainings as trainings
import tpk

class Slowly(tpk.Callback):
    chief_only = False

    def trigger_step(self, trainer):
        time.sleep(float(os.environ.get("SECONDS_OF_STEP", 0)))
        print("step", trainer.global_step, flush=True)

name = sys.argv[1]
strategy = tpk.use("collective", timeouts={{"start": 200, "heartbeat": 60}})
values, _ = trainings.train(
    trainings.batches(8), 60, "adam", [tpk.ModelSaver(), Slowly()], strategy, run_dir=name, resume="auto"
)
with open(f"{{name}}-{{os.environ['SLURM_PROCID']}}", "wb") as file:
    pickle.dump((os.environ.get("SLURM_RESTART_COUNT"), values), file)
"""
JOB = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks=2 --ntasks-per-node=1 --requeue --open-mode=append --output=job.out
srun {python} train.py "$1"
[ $? -ne 138 ] || scontrol requeue "$SLURM_JOB_ID"
"""
TWO_STEPS = """\
#!/bin/bash
#SBATCH --nodes=1 --ntasks=4 --output=job.out
srun --exact --nodes=1 --ntasks=2 {python} train.py one &
srun --exact --nodes=1 --ntasks=2 {python} train.py other &
wait -n && wait -n
"""
MANUAL = Path(__file__).parents[3] / "docs" / "howto" / "several-hosts.md"
WITH_SERVERS = """
import sys
sys.path.insert(0, {here!r})
import distributed_trainings as trainings

kept = trainings.train(trainings.STRATEGIES["replicated"](), trainings.batches(8))
if kept is not None:
    print("sum is", repr(sum(float(kept["saved"][name].sum()) for name in kept["trained"])), flush=True)
"""
JOB_WITH_SERVERS = """\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --output=job.out
export PATH="{bin}:$PATH"
{command}
"""


def fill(path, text, **values):
    path.write_text(text.format(here=str(Path(__file__).parent), python=sys.executable, **values))


@pytest.fixture
def directory(tmp_path):
    """Where the scripts are, and their results go."""
    for name, text in (("train.py", TRAIN), ("job.sh", JOB), ("steps.sh", TWO_STEPS)):
        fill(tmp_path / name, text)
    return tmp_path


def results(directory, name):
    return [pickle.loads((directory / f"{name}-{rank}").read_bytes()) for rank in range(2)]


@pytest.mark.parametrize("options", [(), ("MpiParams=ports=12000-12999",)], ids=["derived", "reserved"])
def test_two_steps_of_a_job_train_on_one_host(network, directory, options):
    with slurms.slurm(network, directory, options) as slurm:
        done = slurm.run("sbatch", "--wait", "steps.sh")
        assert done.returncode == 0, (directory / "job.out").read_text()[-5000:]
    for name in ("one", "other"):
        first, second = results(directory, name)
        assert first[1].keys() == second[1].keys()


def test_the_command_of_the_manual_starts_parameter_servers(network, directory):
    (command,) = re.findall("^srun .*tpk launch .*$", MANUAL.read_text(), re.MULTILINE)
    assert "tpk launch -n 4 --ps 1 " in command
    command = command.replace("tpk launch -n 4", "tpk launch -n 2")
    fill(directory / "train.py", WITH_SERVERS)
    fill(directory / "job.sh", JOB_WITH_SERVERS, command=command, bin=os.path.dirname(sys.executable))
    with slurms.slurm(network, directory) as slurm:
        done = slurm.run("sbatch", "--wait", "job.sh")
    written = (directory / "job.out").read_text()
    assert done.returncode == 0, written[-5000:]
    sums = re.findall(r"\[(\d)\] sum is (.*)", written)
    assert sorted(rank for rank, _ in sums) == ["0", "1", "2", "3"]  # Once each: it is one training.
    assert len({value for _, value in sums}) == 1


def test_every_rank_refuses_a_distribution_that_slurm_does_not_describe(network, directory):
    with slurms.slurm(network, directory) as slurm:
        options = ("--nodes=2", "--ntasks=4", "--distribution=plane=2", "--label")
        done = slurm.run("srun", *options, sys.executable, "train.py", "run")
    lines = done.stderr.splitlines()
    refused = [line[0] for line in lines if "ConfigError: SLURM_DISTRIBUTION is 'plane'" in line]
    assert sorted(refused) == ["0", "1", "2", "3"], done.stderr[-3000:]


def test_a_job_that_is_told_to_end_is_requeued_and_continues_to_the_same_bits(network, directory):
    output = directory / "job.out"
    with slurms.slurm(network, directory) as slurm:
        done = slurm.run("sbatch", "--wait", "job.sh", "whole")
        assert done.returncode == 0, output.read_text()[-5000:]
        output.unlink()
        waiting = slurm.start(0, "sbatch", "--wait", "--export=ALL,SECONDS_OF_STEP=0.2", "job.sh", "requeued")
        slurms.wait_for(lambda: output.exists() and "step 7" in output.read_text())
        (job,) = slurm.run("squeue", "-h", "-o", "%A").stdout.split()
        slurm.run("scancel", "--signal=USR1", job)
        assert waiting.wait(300) == 0, output.read_text()[-5000:]
    for (never, whole), (restarts, requeued) in zip(
        results(directory, "whole"), results(directory, "requeued"), strict=True
    ):
        assert (never, restarts) == (None, "1")
        for name, value in whole.items():
            assert requeued[name].tobytes() == value.tobytes(), name
