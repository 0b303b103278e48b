from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest

import tpk
from tpk.plugin import get_catalog

pytestmark = pytest.mark.once


def test_run_steps_trains_and_returns_the_trainer(run_steps, hook_recorder):
    recorder = hook_recorder(["cost:0"])
    trainer = run_steps(recorder, 4)
    assert (trainer.global_step, trainer.epoch_num) == (4, 1)
    costs = [float(cost) for (cost,) in recorder.results]
    # Each step takes a fifth off the distance to the minimum.
    np.testing.assert_allclose(costs, [0.8 ** (2 * step) for step in range(4)], rtol=1e-5)


def test_run_steps_takes_several_callbacks_and_monitors(run_steps, hook_recorder):
    class Reporting(tpk.Callback):
        def trigger(self):
            self.trainer.monitors.put_scalar("half", self.global_step / 2)

    trainer = run_steps([Reporting(), hook_recorder(), Reporting], 2, epochs=3, monitors=["ScalarPrinter"])
    assert list(trainer.hooks.plugins)[2:5] == ["Reporting", "HookRecorder", "Reporting#2"]
    assert trainer.monitors.get_history("half")[-1] == (6, 3.0)


def test_run_steps_leaves_no_graph_behind(run_steps, hook_recorder):
    import tensorflow as tf

    assert run_steps(hook_recorder(), 1).graph is not run_steps(hook_recorder(), 1).graph
    assert tf.executing_eagerly()


def test_the_recorder_records_every_hook_in_the_order_of_the_loop(run_steps, hook_recorder):
    recorder = hook_recorder()
    run_steps(recorder, 1, epochs=2)
    epoch = ["before_epoch", "before_run", "after_run", "trigger_step", "after_epoch", "trigger_epoch"]
    assert recorder.hooks == ["setup_graph", "before_train", *epoch, *epoch, "after_train"]
    assert recorder.calls[1] == ("before_train", 0, -1)
    assert recorder.calls[-2] == ("trigger_epoch", 2, 0)


def test_an_error_in_a_step_hook_names_the_callback(run_steps):
    class Failing(tpk.Callback):
        def after_run(self, run_values):
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom") as caught:
        run_steps(Failing(), 1)
    assert "in callback 'Failing', hook 'after_run'" in caught.value.__notes__


def test_a_traced_training_is_the_same_training(run_steps, hook_recorder, monkeypatch):
    plain, traced = hook_recorder(["cost:0"]), hook_recorder(["cost:0"])
    run_steps([plain, hook_recorder()], 2)
    monkeypatch.setenv("TPK_TRACE", "1")
    run_steps([traced, hook_recorder()], 2)
    assert (traced.calls, traced.results) == (plain.calls, plain.results)


def test_a_fake_distribution_can_be_used_by_name(run_steps, fake_distribution):
    fake_distribution(
        "tpk-hello",
        "1.5",
        entry_points={"tpk.callbacks": {"hello": "hello:Hello"}},
        modules={"hello": "import tpk\nclass Hello(tpk.Callback):\n    def before_train(self): self.said = 'hello'\n"},
    )
    trainer = run_steps("hello", 1)
    assert trainer.hooks.plugins["Hello"].said == "hello"
    assert importlib.metadata.version("tpk-hello") == "1.5"


def test_a_fake_distribution_that_asks_to_be_loaded_is(run_steps, fake_distribution):
    fake_distribution(
        "tpk-always",
        entry_points={"tpk.plugins": {"always": "always"}},
        modules={"always": "import tpk\ncalls = []\n@tpk.hookimpl\ndef trigger_step(): calls.append('step')\n"},
    )
    trainer = run_steps([], 3)
    assert trainer.hooks.plugins["always"].calls == ["step"] * 3


@pytest.mark.parametrize("value", [1, 2])
def test_modules_of_a_fake_distribution_are_forgotten(fake_distribution, value):
    fake_distribution("tpk-value", modules={"value_module": f"value = {value}"})
    assert get_catalog().resolve("callback", "value_module:value") == value


def test_the_isolated_catalog_has_the_builtins_only(isolated_catalog):
    assert get_catalog() is isolated_catalog
    assert {entry.distribution for entry in isolated_catalog.entries()} == {"tpk-train"}


@pytest.fixture
def blocking(monkeypatch):
    monkeypatch.setenv("TPK_BLOCK", "no-such-plugin")


def test_the_isolated_catalog_ignores_the_environment(blocking, isolated_catalog):
    assert isolated_catalog.find("callback", "ModelSaver").status == "available"
