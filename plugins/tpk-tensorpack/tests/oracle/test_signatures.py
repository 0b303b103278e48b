"""What can be called in tensorpack 0.11 can be called here with the same arguments.

What is optional here and has no counterpart there is no difference, nor is an argument that is required there and has a
default here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")

SCRIPT = Path(__file__).parent / "signatures.py"

# What differs, by regular expressions, and why.
DIFFERENT = {
    r"callbacks.base.Callback.(before|after)_(train|epoch|run)": "the hooks without underscore are those of tpk",
    r"callbacks.base.Callback.trigger_(step|epoch)": "likewise",
    r"callbacks.hooks.CallbackToHook.(before|after)_run": "those of TensorFlow's hooks, by its names",
    r"callbacks.inference.Inferencer.get_fetches": "a runner gives it the tower; `_get_fetches` takes nothing",
    r"callbacks.monitor.\w+.process_(scalar|image|event)": "whoever reports gives the value by position",
    r"callbacks.monitor.Monitors.put_(scalar|image|event)": "the second parameter is called as in tpk",
    r"callbacks.param.\w+.set_value": "whoever sets gives the value by position",
    r"dataflow.imgaug.\w+.\w+.get_transform": "the image is given by position; some make no use of it",
    r"input_source.input_source_base.InputSource.setup": "its parameter is called as in tpk",
    r"models.regularize.l2_regularizer": "that of tensorpack on TensorFlow 2 names its parameter in another way",
    r"tfutils.gradproc.GradientProcessor.process": "its parameter is called as in tpk",
    r"tfutils.tower.BaseTowerContext": "nobody makes one: it is the base of those of training and of inference",
    r"tfutils.tower.TowerFunc(Wrapper)?": "the second parameter has a name here",
}

# What is not here, and why.
MISSING = {
    "callbacks.group.Callbacks.get_hooks": "trainers do it",
    "callbacks.group.Callbacks.trigger_step": "trainers do it",
    "callbacks.hooks.TFLocalCLIDebugHook.add_tensor_filter": "the class raises an error that says what to use",
    "callbacks.inference_runner.DataParallelInferenceRunner.register_hook": "hooks are callbacks",
    "callbacks.inference_runner.InferenceRunnerBase.register_hook": "hooks are callbacks",
    "callbacks.monitor.CometMLMonitor.process_image": "the class raises an error that says what to use",
    "callbacks.monitor.CometMLMonitor.process_scalar": "the class raises an error that says what to use",
    "callbacks.monitor.MonitorBase.process": "monitors do it",
    "callbacks.prof.GPUUtilizationTracker.worker": "of its implementation",
    "callbacks.trigger.PeriodicCallback.predicate": "of its implementation",
    "dataflow.remote.RemoteDataZMQ.bind_or_connect": "of its implementation",
    "input_source.input_source.QueueInput.refill_queue": "an evaluation takes each pass apart",
    "input_source.input_source.ZMQInput.to_dataset": "it needs an op that is to be compiled",
    "input_source.input_source_base.InputSource.cached_name_scope": "of its implementation",
    "input_source.input_source_base.InputSource.get_callbacks": "setup() returns them",
    "input_source.input_source_base.InputSource.setup_done": "of its implementation",
    "input_source.input_source_base.InputSource.size": "a property",
    "train.base.Trainer.initialize_hooks": "initialize() does it",
    "train.trainers.HorovodTrainer.allreduce": "the strategy does it",
    "train.trainers.HorovodTrainer.broadcast": "the strategy does it",
}


@pytest.fixture(scope="module")
def both():
    """What can be called in each of the two packages."""
    return [signatures(package) for package in ("tensorpack", "tpk_tensorpack")]


def signatures(package):
    done = subprocess.run([sys.executable, SCRIPT, package], stdout=subprocess.PIPE, text=True, timeout=200, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_all_that_tensorpack_exports_is_here(both):
    theirs, ours = both
    assert len(theirs) > 500
    assert sorted(set(theirs) - set(ours)) == sorted(MISSING)


def test_parameters_are_those_of_tensorpack(both):
    theirs, ours = both
    different = [name for name in theirs if name in ours and not takes_as_much(theirs[name], ours[name])]
    unknown = [name for name in different if not any(re.fullmatch(each, name) for each in DIFFERENT)]
    assert not unknown, {name: (theirs[name], ours[name]) for name in unknown}
    assert all(any(re.fullmatch(each, name) for name in different) for each in DIFFERENT)
    assert len(DIFFERENT) <= 20


def takes_as_much(theirs, ours):
    """Whether what can be called with the one parameters can be called with the others, too, and means the same."""
    if theirs is None or ours is None or [kind for _, kind, _ in theirs] == ["VAR_POSITIONAL", "VAR_KEYWORD"]:
        return True
    if len(theirs) > len(ours):
        return False
    for (name, kind, default), (our_name, our_kind, our_default) in zip(theirs, ours):  # noqa: B905
        if (name, kind) != (our_name, our_kind) or (default is not None and default != our_default):
            return False
    return all(
        default is not None or kind in ("VAR_POSITIONAL", "VAR_KEYWORD") for _, kind, default in ours[len(theirs) :]
    )
