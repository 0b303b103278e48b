"""Every callable of tensorpack 0.11 exists here and accepts the same arguments.

Additional optional parameters are allowed, and required parameters may have a default.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorpack", reason="the oracle, tensorpack 0.11, is not installed; nox -s port_oracle has it")

SCRIPT = Path(__file__).parent / "signatures.py"

# Intended differences, as regular expressions, and their reasons.
DIFFERENT = {
    r"callbacks.base.Callback.(before|after)_(train|epoch|run)": "the hooks without underscore are tpk's",
    r"callbacks.base.Callback.trigger_(step|epoch)": "likewise",
    r"callbacks.hooks.CallbackToHook.(before|after)_run": "the names in TensorFlow's hooks",
    r"callbacks.inference.Inferencer.get_fetches": "a runner passes the tower; `_get_fetches` takes no arguments",
    r"callbacks.monitor.\w+.process_(scalar|image|event)": "the value is passed positionally",
    r"callbacks.monitor.Monitors": "the trainer makes it, and passes itself first",
    r"callbacks.monitor.Monitors.put_(scalar|image|event)": "the second parameter has its name in tpk",
    r"callbacks.param.\w+.set_value": "the value is passed positionally",
    r"dataflow.imgaug.\w+.\w+.get_transform": "the image is passed positionally; some ignore it",
    r"input_source.input_source_base.InputSource.setup": "the parameter has its name in tpk",
    r"models.regularize.l2_regularizer": "tensorpack's has a different parameter name on TensorFlow 2",
    r"tfutils.gradproc.GradientProcessor.process": "the parameter has its name in tpk",
    r"tfutils.tower.BaseTowerContext": "a base class that is not instantiated directly",
    r"tfutils.tower.TowerFunc(Wrapper)?": "the second parameter has a name here",
}

# Missing names, and why.
MISSING = {
    "callbacks.group.Callbacks.get_hooks": "the trainer does this",
    "callbacks.group.Callbacks.trigger_step": "the trainer does this",
    "callbacks.hooks.TFLocalCLIDebugHook.add_tensor_filter": "the class raises an error that names alternatives",
    "callbacks.inference_runner.DataParallelInferenceRunner.register_hook": "hooks are callbacks",
    "callbacks.inference_runner.InferenceRunnerBase.register_hook": "hooks are callbacks",
    "callbacks.monitor.CometMLMonitor.process_image": "the class raises an error that names alternatives",
    "callbacks.monitor.CometMLMonitor.process_scalar": "the class raises an error that names alternatives",
    "callbacks.monitor.MonitorBase.process": "each monitor does this",
    "callbacks.prof.GPUUtilizationTracker.worker": "an implementation detail",
    "callbacks.trigger.PeriodicCallback.predicate": "an implementation detail",
    "dataflow.remote.RemoteDataZMQ.bind_or_connect": "an implementation detail",
    "input_source.input_source.QueueInput.refill_queue": "evaluations separate the passes",
    "input_source.input_source.ZMQInput.to_dataset": "it needs an op that has to be compiled",
    "input_source.input_source_base.InputSource.cached_name_scope": "an implementation detail",
    "input_source.input_source_base.InputSource.get_callbacks": "setup() returns them",
    "input_source.input_source_base.InputSource.setup_done": "an implementation detail",
    "input_source.input_source_base.InputSource.size": "a property",
    "train.base.Trainer.initialize_hooks": "initialize() does this",
    "train.trainers.HorovodTrainer.allreduce": "the strategy does this",
    "train.trainers.HorovodTrainer.broadcast": "the strategy does this",
}


@pytest.fixture(scope="module")
def both():
    """Return the callables of the two packages."""
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
    """Return whether every call that fits the first parameters also fits the second, with the same meaning."""
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


def test_the_list_of_the_api_page_has_all_of_this_release(tmp_path):
    listed = SCRIPT.parent.parent / "train_page.tsv"
    copy = shutil.copy(listed, tmp_path)
    subprocess.run([sys.executable, SCRIPT.with_name("train_page.py"), copy], timeout=200, check=True)
    assert Path(copy).read_text() == listed.read_text()
