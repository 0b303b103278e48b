from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tensorflow as tf

import tpk
from tpk.cli.main import main
from tpk.cli.runs.run import Run
from tpk.cli.runs.run_table import differences
from tpk.train.run.lock import run_lock


class Counting(tpk.Trainer):
    def __init__(self, rate=0.5):
        super().__init__()
        with self.graph.as_default():
            self.count = tf.compat.v1.get_variable("count", initializer=0)
            self.train_op = self.count.assign_add(1, read_value=False)
        self.rate = rate

    @property
    def options(self):
        return {"rate": self.rate}


class Report(tpk.Callback):
    """Reports a cost and a score, and calls a function in epoch 3."""

    def __init__(self, costs, act=None):
        self.costs = costs
        self.act = act

    def before_epoch(self, trainer):
        if trainer.epoch_num == 3 and self.act:
            self.act(trainer)

    def trigger_epoch(self, trainer):
        cost = self.costs[trainer.epoch_num - 1]
        trainer.monitors.put_scalar("cost", cost)
        trainer.monitors.put_scalar("score", 1 - cost)


def train(run_dir, costs, act=None, callbacks=(), **options):
    Counting(**options).train(
        callbacks=[tpk.ModelSaver(), Report(costs, act), *callbacks],
        monitors=["JSONWriter"],
        steps_per_epoch=2,
        max_epoch=3,
        run_dir=run_dir,
        resume="auto",
    )


def fail(trainer):
    raise ValueError("boom")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A directory with a finished run, a failed run, and a copy of a run that was taken during training."""
    directory = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setattr(sys, "argv", [__file__, "--run-dir", "runs/done", "--lr", "0.5"])
        train("runs/done", [0.5, 0.25, 0.375], callbacks=[tpk.MinSaver("cost"), tpk.MaxSaver("score")])
        patch.setattr(sys, "argv", [__file__, "--run-dir=runs/failed", "--lr", "0.1", "--fast"])
        with pytest.raises(ValueError, match="boom"):
            train("runs/failed", [0.75, 0.625], fail, callbacks=[tpk.MinSaver("cost")], rate=0.1)
        copy = directory / "runs" / "deep" / "killed"
        train("other", [0.5, 0.125, 1], lambda trainer: shutil.copytree(trainer.run_dir, copy))
    return directory


@pytest.fixture
def runs(project, monkeypatch):
    monkeypatch.chdir(project)


def run(capsys, *arguments):
    status = main(arguments)
    written, errors = capsys.readouterr()
    return status, written, errors


def listed(capsys, *arguments):
    status, written, errors = run(capsys, "runs", *arguments, "--json")
    assert (status, errors) == (0, "")
    return {each["run"]: each for each in json.loads(written)}


# runs


@pytest.mark.parametrize("command", ["runs", "show"])
def test_control_characters_are_escaped(runs, capsys, tmp_path, command):
    run_dir = tmp_path / "a\x1b[2J\nruns"
    shutil.copytree("runs/failed", run_dir)
    path = run_dir / "attempts.json"
    path.write_text(path.read_text().replace("boom", "boom\\u001b[31m\\nfake  finished"))
    status, text, _ = run(capsys, command, str(run_dir))
    assert status == 0
    assert "\x1b" not in text
    assert r"a\x1b[2J\nruns" in text
    assert not [line for line in text.splitlines() if line.startswith(("fake", "runs"))]


def test_runs_below_a_directory_are_listed_with_their_states(runs, capsys):
    status, table, _ = run(capsys, "runs")
    assert status == 0
    header, *lines = table.partition("\n\n")[0].splitlines()
    assert header.split()[:4] == ["run", "state", "epoch", "step"]
    assert header.split()[-3:] == ["duration", "began", "strategy"]
    assert [line.split("  ")[0] for line in lines] == ["runs/done", "runs/failed", "runs/deep/killed"]
    done, failed, killed = (line.split() for line in lines)
    assert done[1:4] == ["finished", "3/3", "6"]
    assert failed[1:7] == ["failed,", "resumable", "at", "4", "3/3", "4"]
    assert killed[1:7] == ["killed,", "resumable", "at", "4", "2/3", "4"]


def test_json_has_everything(runs, capsys):
    found = listed(capsys)
    done, failed, killed = found["runs/done"], found["runs/failed"], found["runs/deep/killed"]
    assert done["best"] == {
        "cost": {"value": 0.25, "epoch": 2, "step": 4},
        "score": {"value": 0.75, "epoch": 2, "step": 4},
    }
    assert done["last"] == {"cost": 0.375, "score": 0.625}
    assert done["reason"] == "max_epoch=3 is reached"
    assert failed["reason"].startswith("ValueError: boom")
    assert (failed["resumable"], failed["checkpoint"]) == (True, "runs/failed/model-4")
    assert (killed["state"], killed["resumable"], killed["reason"]) == ("killed", True, "")
    assert killed["seconds"] > 0 and killed["attempts"] == 1


def test_a_run_is_running_while_its_directory_is_locked(project, capsys):
    with run_lock(project / "runs" / "deep" / "killed"):
        (found,) = listed(capsys, str(project / "runs" / "deep")).values()
        assert (found["state"], found["resumable"]) == ("running", False)
        _, text, _ = run(capsys, "show", str(project / "runs" / "deep" / "killed"))
        assert f"killed: running, by process {os.getpid()} on " in text and "To resume: it is running." in text


def test_differences_of_configurations_are_named_by_plugin(runs, capsys):
    found = listed(capsys, "runs/done", "runs/failed")
    done, failed = found["runs/done"]["differs"], found["runs/failed"]["differs"]
    assert (done["rate"], failed["rate"]) == (0.5, 0.1)
    assert (done["callbacks.MaxSaver"], failed["callbacks.MaxSaver"]) == ("MaxSaver", "-")
    # Options of a plugin that only one run has are left out.
    assert "callbacks.MaxSaver.monitor_stat" not in done
    # Arguments about the location of a run are left out.
    assert (done["argv"], failed["argv"]) == ("--lr 0.5", "--lr 0.1 --fast")
    assert not {"run_dir", "resume", "callbacks.ModelSaver"} & done.keys()
    _, table, _ = run(capsys, "runs", "runs/done", "runs/failed")
    *_, first, second = table.splitlines()
    assert first.startswith("runs/done    ") and "rate=0.5" in first
    # By the name of the option, not by the path to it.
    assert " MaxSaver, " in first and " no MaxSaver, " in second and "callbacks." not in table
    assert second.startswith("runs/failed  ") and "argv=--lr 0.1 --fast" in second
    assert listed(capsys, "runs/done")["runs/done"]["differs"] == {}


def test_options_of_a_plugin_are_compared_among_runs_that_have_it():
    def having(**config):
        return SimpleNamespace(config=config, directory=Path("run"))

    bar = {"name": "ProgressBar", "options": {}}
    savers = [{"name": "ModelSaver", "options": {"max_to_keep": kept, "when": None}} for kept in (3, 5)]
    found = differences([having(callbacks=[bar]), *(having(callbacks=[bar, saver]) for saver in savers)])
    assert found == [
        {"callbacks.ModelSaver": "-"},
        {"callbacks.ModelSaver": "ModelSaver", "callbacks.ModelSaver.max_to_keep": 3},
        {"callbacks.ModelSaver": "ModelSaver", "callbacks.ModelSaver.max_to_keep": 5},
    ]


def test_options_with_the_same_name_are_told_apart_by_their_owners(runs, capsys, tmp_path):
    for name, rate, kept in (("a", 1, 1), ("b", 2, 3)):
        shutil.copytree("runs/done", tmp_path / name)
        path = tmp_path / name / "config.json"
        owners = {"input": {"flow": {"size": rate}, "queue": {"size": rate + 1}, "keep": kept}, "data": {"keep": kept}}
        path.write_text(json.dumps({**json.loads(path.read_text()), **owners}))
    _, table, _ = run(capsys, "runs", str(tmp_path))
    assert table.splitlines()[-2].split("  ")[-1] == "flow.size=1, queue.size=2, keep=1"


def test_the_table_is_legible_when_runs_have_little_in_common(runs, capsys, tmp_path):
    for name in ("a", "b"):
        shutil.copytree("runs/done", tmp_path / name)
        path = tmp_path / name / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "max_epoch": name, **{f"option{i}": name * 100 for i in range(10)}}))
    _, table, _ = run(capsys, "runs", str(tmp_path))
    line = table.splitlines()[-1]
    assert f"option7={'b' * 20}…{'b' * 19}, … 2 more (--json)" in line and "max_epoch" not in line and len(line) < 500


@pytest.mark.parametrize(
    ("options", "order"),
    [
        (["--sort", "name"], ["deep/killed", "done", "failed"]),
        (["--sort", "name", "--reverse"], ["failed", "done", "deep/killed"]),
        (["--sort", "state"], ["failed", "deep/killed", "done"]),
        # By the best value; the killed run has no direction for the cost, so its last value counts.
        (["--sort", "cost"], ["deep/killed", "done", "failed"]),
        (["--sort", "score"], ["done", "failed", "deep/killed"]),
        (["--sort", "step", "--reverse"], ["done", "failed", "deep/killed"]),
    ],
)
def test_runs_are_sorted_by_a_key(runs, capsys, options, order):
    assert [name.removeprefix("runs/") for name in listed(capsys, *options)] == order


def test_the_table_shows_followed_statistics_or_named_ones(runs, capsys):
    _, table, _ = run(capsys, "runs", "runs/done")
    header, line = table.splitlines()
    assert header.split()[4:-3] == ["cost", "best", "(epoch)", "score", "best", "(epoch)"]
    assert line.split()[4:10] == ["0.375", "0.25", "(2)", "0.625", "0.75", "(2)"]
    _, table, _ = run(capsys, "runs", "runs/done", "runs/failed", "--stat", "cost", "--stat", "nothing")
    assert "0.375  0.25 (2)      -        -" in table.splitlines()[1]


def test_unreadable_files_are_reported_and_other_runs_are_listed(runs, capsys, tmp_path):
    shutil.copytree("runs/done", tmp_path / "runs" / "a")
    shutil.copytree("runs/done", tmp_path / "runs" / "b")
    (tmp_path / "runs" / "a" / "config.json").write_text("{")
    status, table, _ = run(capsys, "runs", str(tmp_path))
    assert status == 1
    assert "runs/b  finished" in table and "runs/a: '" in table and "config.json' cannot be read" in table
    status, text, _ = run(capsys, "runs", str(tmp_path), "--json")
    assert (status, [each["state"] for each in json.loads(text)]) == (1, ["finished", "unreadable"])


def test_a_run_without_a_record_is_unknown(runs, capsys, tmp_path):
    shutil.copytree("runs/done", tmp_path / "run")
    (tmp_path / "run" / "attempts.json").unlink()
    (found,) = listed(capsys, str(tmp_path)).values()
    assert (found["state"], found["seconds"], found["step"]) == ("unknown", None, 6)


def test_a_run_is_not_resumed_from_a_torn_checkpoint(runs, tmp_path):
    shutil.copytree("runs/failed", tmp_path / "run")
    data = tmp_path / "run" / "model-4.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    assert Run(tmp_path / "run").checkpoint.name == "model-2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs", "nowhere"], "the directory 'nowhere' does not exist"),
        (["runs", "."], None),
        (["runs", "runs/done/none"], "the directory 'runs/done/none' does not exist"),
        (
            ["runs", "--sort", "csot"],
            "--sort csot: expected one of began, name, state, duration, step, or a statistic: ",
        ),
        (["show", "runs"], "'runs' has 3 runs below it: name one, such as "),
        (["plot", "runs", "-o", "x.bmp"], "'x.bmp': expected a file name that ends in one of .png, .svg, .pdf."),
        (["plot", "runs", "-o", "nowhere/x.svg"], "'nowhere/x.svg' cannot be written: No such file or directory."),
        (["plot", "runs", "-o", "x.svg", "--stat", "csot"], "no run has a statistic 'csot'. Nearest: 'cost'."),
    ],
)
def test_errors_are_one_line(runs, capsys, arguments, message):
    status, _, errors = run(capsys, *arguments)
    assert status == (0 if message is None else 1)
    assert errors.startswith(f"tpk: {message}" if message else "") and errors.count("\n") == (message is not None)


def test_the_newest_run_is_the_default(runs, capsys):
    os.utime("runs/failed/log.txt", (4e9, 4e9))
    assert run(capsys, "show")[1].startswith("runs/failed: failed")
    os.utime("runs/done/log.txt", (4.1e9, 4.1e9))
    assert run(capsys, "show")[1].startswith("runs/done: finished")


def test_a_directory_without_runs_is_an_error(tmp_path, capsys):
    status, _, errors = run(capsys, "runs", str(tmp_path))
    assert status == 1 and "has no run in it or below it" in errors


# show


def test_show_prints_configuration_end_and_how_to_resume(runs, capsys):
    status, text, _ = run(capsys, "show", "runs/failed")
    assert status == 0
    assert text.startswith("runs/failed: failed, resumable at 4: ValueError: boom; in callback 'Report', hook")
    for part in (
        "trainer:     Counting(rate=0.1)",
        "epochs:      3 epochs of 2 steps",
        "callbacks:   ModelSaver, Report, MinSaver",
        "checkpoints: 2; the newest complete one is model-4",
        "cost       2       0.625  0.625  2      4",
        "score      2       0.375  -      -      -",
    ):
        assert part in text
    cwd = os.getcwd()
    command = f"cd {cwd} && python {__file__} --run-dir=runs/failed --lr 0.1 --fast"
    assert f"To resume: {command} --run-dir {cwd}/runs/failed --resume auto\n" in text


def test_the_name_of_a_statistic_says_what_is_best(runs, capsys, tmp_path):
    shutil.copytree("runs/done", tmp_path / "run")
    values = {
        "val_loss": [3, 1, 2],
        "validation_error": [0.5, 0.25, 0.5],
        "accuracy": [0.5, 0.75, 0.5],
        "lr": [1, 2, 3],
    }
    with (tmp_path / "run" / "stats.jsonl").open("w") as file:
        for epoch in range(3):
            line = {"epoch_num": epoch + 1, "global_step": 2 * (epoch + 1), "time": 0.0}
            print(json.dumps(line | {name: each[epoch] for name, each in values.items()}), file=file)
    _, text, _ = run(capsys, "show", str(tmp_path / "run"))
    best = {words[0]: words[3:] for line in text.splitlines() if len(words := line.split()) == 6}
    assert {name: best[name] for name in values} == {
        "val_loss": ["1", "2", "4"],
        "validation_error": ["0.25", "2", "4"],
        "accuracy": ["0.75", "2", "4"],
        "lr": ["-", "-", "-"],
    }


def test_how_to_resume_depends_on_the_state(runs, capsys, tmp_path):
    data = json.loads(run(capsys, "show", "runs/done", "--json")[1])
    assert data["state"] == "finished" and data["go_on"].endswith("--resume auto, with a greater max_epoch")
    assert data["attempts"][0]["step"] == 6 and data["config"]["max_epoch"] == 3
    shutil.copytree("runs/failed", tmp_path / "run")
    for path in (tmp_path / "run").glob("state-*"):
        path.unlink()
    assert "no checkpoint is complete" in run(capsys, "show", str(tmp_path / "run"))[1]


@pytest.mark.parametrize(
    ("argv", "resume", "message"),
    [
        (None, "never", 'the same training, with run_dir="RUN", resume="auto"'),
        (
            ["train.py", "0.1"],
            "never",
            'cd /here && python train.py 0.1, with run_dir="RUN"',
        ),
        (["/usr/bin/tpk", "train", "x.toml"], "never", "tpk train RUN/config.toml --resume"),
    ],
)
def test_a_run_is_resumed_by_the_command_that_started_it(runs, capsys, tmp_path, argv, resume, message):
    shutil.copytree("runs/failed", tmp_path / "run")
    for name, change in (
        ("attempts", {"argv": argv, "cwd": "/here"}),
        ("config", {"resume": resume, "run_dir": str(tmp_path / "run")}),
    ):
        path = tmp_path / "run" / f"{name}.json"
        content = json.loads(path.read_text())
        (content["attempts"][0] if name == "attempts" else content).update(change)
        path.write_text(json.dumps(content))
    assert json.loads(run(capsys, "show", str(tmp_path / "run"), "--json")[1])["go_on"].startswith(
        message.replace("RUN", str(tmp_path / "run"))
    )


@pytest.mark.parametrize("argv", [None, ["train.py", "0.1"], ["/src/tpk/__main__.py", "train", "x.toml"]])
def test_a_complete_run_file_resumes_and_repeats_the_run(runs, capsys, tmp_path, argv):
    shutil.copytree("runs/failed", tmp_path / "run")
    path = tmp_path / "run" / "attempts.json"
    content = json.loads(path.read_text())
    content["attempts"][0]["argv"] = argv
    path.write_text(json.dumps(content))
    run_file = tmp_path / "run" / "config.toml"
    run_file.write_text('model = "digits:Model"')
    text = run(capsys, "show", str(tmp_path / "run"))[1]
    assert text.endswith(f"To resume: tpk train {run_file} --resume\nTo repeat: tpk train {run_file}\n")
    assert json.loads(run(capsys, "show", str(tmp_path / "run"), "--json")[1])["run_file"] == str(run_file)
    # A torn file, and an incomplete one.
    for content in ("model = ", 'callbacks = [{ use = "x", f = { not_written = "a lambda" } }]'):
        run_file.write_text(content)
        assert "To repeat" not in run(capsys, "show", str(tmp_path / "run"))[1]


def test_how_to_resume_names_the_number_of_processes(runs, capsys, tmp_path):
    shutil.copytree("runs/failed", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "world_size": 2}))
    assert "To resume: in 2 processes, as before: cd " in run(capsys, "show", str(tmp_path / "run"))[1]


@pytest.mark.parametrize("command", [["runs"], ["show", "runs/done"], ["plot", "runs", "-o", os.devnull + ".html"]])
def test_commands_about_runs_import_no_tensorflow(runs, command, tmp_path):
    command = [str(tmp_path / "x.svg") if each.startswith(os.devnull) else each for each in command]
    script = (
        f"import sys; from tpk.cli.main import main; status = main({command!r});"
        "assert not {'tensorflow', 'keras'} & set(sys.modules); sys.exit(status)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=280, stdout=subprocess.DEVNULL)
