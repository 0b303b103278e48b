from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tpk.cli.main import main


def run(capsys, *arguments):
    """Run the command; return its exit status, stdout and stderr."""
    status = main(["checkpoint", *map(str, arguments)])
    written, errors = capsys.readouterr()
    return status, written, errors


def error_of(capsys, *arguments):
    """Run a command that must fail; return the error."""
    status, written, error = run(capsys, *arguments)
    assert (status, written) == (2 if arguments[0] == "diff" else 1, "")
    assert error.startswith("tpk: ") and error.count("\n") == 1
    return error


@pytest.fixture
def save(tmp_path):
    """Return a function that writes a checkpoint with given values, and returns its prefix."""

    def save(name, **values):
        import tensorflow as tf

        names = [key.replace("__", "/") for key in values]
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        tf.raw_ops.SaveV2(
            prefix=str(path),
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.constant(value) for value in values.values()],
        )
        return path

    return save


# ls


@pytest.fixture
def run_dir(tmp_path):
    """A directory like that of a run, but without real contents of the files."""
    directory = tmp_path / "run"
    directory.mkdir()
    for step in (20, 100, 3):
        (directory / f"model-{step}.index").write_bytes(bytes(100))
        (directory / f"model-{step}.data-00000-of-00001").write_bytes(bytes(2000 + step))
    (directory / "checkpoint").write_text(
        'model_checkpoint_path: "model-20"\nall_model_checkpoint_paths: "model-3"\n', encoding="utf-8"
    )
    (directory / "stats.jsonl").write_text("{}\n")
    return directory


def listed(capsys, directory, *options):
    status, written, errors = run(capsys, "ls", directory, "--json", *options)
    assert (status, errors) == (0, "")
    return {each["name"]: each for each in json.loads(written)}


def test_ls_lists_steps_in_their_order_with_time_size_and_pointer(run_dir, capsys):
    os.utime(run_dir / "model-3.index", (1e9, 1e9))
    os.utime(run_dir / "model-3.data-00000-of-00001", (1e9 + 1, 1e9 + 1))
    status, table, _ = run(capsys, "ls", run_dir)
    assert status == 0
    lines = [line.split() for line in table.splitlines()[:-1]]
    assert [line[:2] for line in lines[1:]] == [["3", "model-3"], ["20", "model-20"], ["100", "model-100"]]
    assert [line[2] == "*" for line in lines[1:]] == [False, True, False]
    assert "2.1 KiB" in table
    found = listed(capsys, run_dir)
    assert list(found) == ["model-3", "model-20", "model-100"]
    assert found["model-3"] == {
        "name": "model-3",
        "step": 3,
        "time": "2001-09-09T01:46:41+00:00",
        "size": 2103,
        "state": False,
        "problem": None,
        "verified": False,
        "latest": False,
    }


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: (path / "model-20.index").unlink(), "model-20.index is missing"),
        (lambda path: (path / "model-20.data-00000-of-00001").unlink(), "model-20.data-* is missing"),
        (
            lambda path: (path / "model-20.data-00000-of-00001").rename(path / "model-20.data-00001-of-00002"),
            "model-20.data-00000-of-00002 is missing",
        ),
        (lambda path: (path / "state-20.json").write_bytes(b"{"), "state-20.json does not begin as a training state"),
    ],
)
def test_ls_says_why_a_checkpoint_is_incomplete(run_dir, capsys, damage, problem):
    damage(run_dir)
    found = listed(capsys, run_dir)
    assert found["model-20"]["problem"].startswith(problem)
    assert found["model-3"]["problem"] is None
    _, table, _ = run(capsys, "ls", run_dir)
    assert f"no: {problem}" in table


def test_ls_lists_a_training_state_without_variables(run_dir, capsys):
    (run_dir / "state-7.json").write_bytes(b"{")
    assert listed(capsys, run_dir)["model-7"]["problem"] == "model-7.index is missing"


def write_state(directory, step, name=None):
    from tpk.checkpoint.files import describe_file, state_bytes, state_path

    name = name or f"model-{step}"
    files = {path.name: describe_file(path) for path in directory.glob(f"{name}.*")}
    content = {"format": 1, "tpk": "0", "name": name, "files": files, "state": {}}
    state_path(directory, step).write_bytes(state_bytes(content))


def test_ls_compares_files_with_the_training_state(run_dir, capsys):
    write_state(run_dir, 20)
    found = listed(capsys, run_dir, "--verify")["model-20"]
    assert found["state"] and found["problem"] is None
    data = run_dir / "model-20.data-00000-of-00001"
    data.write_bytes(bytes(2019) + b"x")
    assert listed(capsys, run_dir)["model-20"]["problem"] is None
    assert "checksum" in listed(capsys, run_dir, "--verify")["model-20"]["problem"]
    data.write_bytes(bytes(10))
    assert listed(capsys, run_dir)["model-20"]["problem"] == f"{data.name} has 10 bytes, but should have 2020"


def test_ls_finds_the_state_of_a_checkpoint_with_a_second_name(run_dir, capsys):
    """A checkpoint gets a second name if files of the same step exist with other variables."""
    for path in run_dir.glob("model-20.*"):
        path.rename(path.with_name(path.name.replace("model-20.", "model-20.2.")))
    write_state(run_dir, 20, "model-20.2")
    for options in ([], ["--verify"]):
        found = listed(capsys, run_dir, *options)
        assert list(found) == ["model-3", "model-20.2", "model-100"]
        assert (found["model-20.2"]["step"], found["model-20.2"]["state"]) == (20, True)
        assert found["model-20.2"]["problem"] is None


@pytest.mark.parametrize("name", ["../run/model-20", "model-*", "model-3"])
def test_ls_does_not_follow_an_invalid_name_in_a_state(run_dir, capsys, name):
    write_state(run_dir, 20, name)
    for options in ([], ["--verify"]):
        problem = listed(capsys, run_dir, *options)["model-20"]["problem"]
        assert problem.startswith("state-20.json is not what tpk writes as a training state")


def test_ls_verifies_only_on_request(run_dir, capsys):
    for step in (3, 20, 100):
        write_state(run_dir, step)
    _, table, _ = run(capsys, "ls", run_dir)
    *lines, note = table.splitlines()
    assert note == "The contents were not read; --verify reads them."
    assert all(line.endswith("by names and sizes") for line in lines[1:])
    assert not any(each["verified"] for each in listed(capsys, run_dir).values())
    (run_dir / "model-20.data-00000-of-00001").write_bytes(bytes(2019) + b"x")
    _, table, _ = run(capsys, "ls", run_dir, "--verify")
    assert [line.endswith("yes") for line in table.splitlines()[1:]] == [True, False, True]
    assert all(each["verified"] for each in listed(capsys, run_dir, "--verify").values())


def test_ls_verifies_a_checkpoint_without_a_training_state(save, tmp_path, capsys):
    prefix = save("run/model-5", w=np.ones(100))
    data = Path(f"{prefix}.data-00000-of-00001")
    assert listed(capsys, prefix.parent, "--verify")["model-5"]["problem"] is None
    data.write_bytes(data.read_bytes()[:-1])
    problem = listed(capsys, prefix.parent, "--verify")["model-5"]["problem"]
    assert data.name in problem and "torn or damaged" in problem


def test_ls_lists_checkpoints_of_other_programs(tmp_path, capsys):
    for name in ("model.ckpt", "model.ckpt-5"):
        (tmp_path / f"{name}.index").write_bytes(b"")
        (tmp_path / f"{name}.data-00000-of-00001").write_bytes(b"")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-5"\n')
    found = listed(capsys, tmp_path)
    assert [(each["step"], each["latest"]) for each in found.values()] == [(None, False), (5, True)]


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_ls_of_a_directory_without_checkpoints_is_an_error(tmp_path, capsys, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert str(tmp_path / name) in error_of(capsys, "ls", tmp_path / name)


def test_ls_and_npz_files_need_no_tensorflow(run_dir, tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones(3))
    for step in (3, 20, 100):
        write_state(run_dir, step)
    script = (
        "import sys; from tpk.cli.main import main;"
        f"assert main(['checkpoint', 'ls', '--verify', {str(run_dir)!r}]) == 0;"
        f"assert main(['checkpoint', 'show', {str(tmp_path / 'x.npz')!r}]) == 0;"
        f"assert main(['checkpoint', 'diff', {str(tmp_path / 'x.npz')!r}, {str(tmp_path / 'x.npz')!r}]) == 0;"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=280, stdout=subprocess.DEVNULL)


# show


def test_show_prints_names_shapes_dtypes_sizes_and_totals(save, capsys):
    prefix = save("model-5", conv__w=np.ones((300, 2), "f4"), step=np.int64(5), text=["a", "b"])
    status, table, errors = run(capsys, "show", prefix)
    assert (status, errors) == (0, "")
    assert [" ".join(line.split()) for line in table.splitlines()] == [
        "name shape dtype size",
        "conv/w (300, 2) float32 2.3 KiB",
        "step () int64 8 B",
        "text (2,) string -",
        f"{prefix}: 3 variables, 603 elements, 2.4 KiB",
    ]
    _, text, _ = run(capsys, "show", prefix, "--json")
    data = json.loads(text)
    assert (data["elements"], data["size"]) == (603, 2408)
    assert data["variables"][0] == {"name": "conv/w", "shape": [300, 2], "dtype": "float32", "size": 2400}


def test_a_checkpoint_can_be_named_in_several_ways(save, tmp_path, capsys):
    prefix = save("run/model-5", w=np.ones(2))
    (prefix.parent / "checkpoint").write_text('model_checkpoint_path: "model-5"\n')
    for path in (prefix, f"{prefix}.index", f"{prefix}.data-00000-of-00001", prefix.parent):
        status, table, _ = run(capsys, "show", path)
        assert status == 0 and "1 variables, 2 elements, 16 B" in table


def test_show_accepts_names_in_the_current_directory(save, capsys, monkeypatch):
    prefix = save("run/model-900", w=np.ones([2, 3]))
    save("run/min-val_error-800", w=np.ones([2, 3]))
    monkeypatch.chdir(prefix.parent)
    Path("checkpoint").write_text('model_checkpoint_path: "model-900"\n')
    Path("checkpoint-min-val_error").write_text('model_checkpoint_path: "min-val_error-800"\n')
    assert run(capsys, "ls", ".")[0] == 0
    names = {".": "./model-900", "900": "model-900", f"{prefix.parent}/900": str(prefix)}
    names |= dict.fromkeys(["min-val_error", "min-val/error"], "min-val_error-800")
    for name, found in names.items():
        status, written, errors = run(capsys, "show", name, "--json")
        assert (status, errors) == (0, ""), name
        assert json.loads(written)["source"] == found


def test_show_prints_statistics_of_values(save, capsys):
    prefix = save("model-5", w=np.array([[1, 3], [0, np.nan]], "f4"), text=["a", "b"], n=np.array([2, 4]))
    _, text, _ = run(capsys, "show", prefix, "--values", "w:0", "--json")
    assert json.loads(text) == {
        "name": "w",
        "shape": [2, 2],
        "dtype": "float32",
        "nan": 1,
        "infinite": 0,
        "min": 0,
        "max": 3,
        "mean": pytest.approx(4 / 3),
        "std": pytest.approx(np.std([1, 3, 0])),
        "zeros": 1,
        "first": ["1.0", "3.0", "0.0", "nan"],
    }
    _, text, _ = run(capsys, "show", prefix, "--values", "n")
    assert "mean:      3.0" in text and "nan" not in text
    _, text, _ = run(capsys, "show", prefix, "--values", "text")
    assert "first:     ['a', 'b']" in text


def test_show_prints_statistics_of_bfloat16(save, capsys):
    import tensorflow as tf

    prefix = save("model-5", half=tf.constant([1.5, -2], tf.bfloat16))
    _, text, _ = run(capsys, "show", prefix, "--values", "half", "--json")
    found = json.loads(text)
    assert (found["dtype"], found["min"], found["max"]) == ("bfloat16", -2, 1.5)


def test_show_suggests_names_near_an_unknown_one(save, capsys):
    prefix = save("model-5", conv__weights=np.ones(2))
    assert "Nearest: 'conv/weights'." in error_of(capsys, "show", prefix, "--values", "conv/weight")


# diff


def test_diff_of_equal_checkpoints_finds_nothing(save, capsys):
    values = {"w": np.array([1, np.nan, np.inf]), "text": ["a"], "n": np.int64(2**62)}
    status, text, _ = run(capsys, "diff", save("a", **values), save("b", **values))
    assert (status, text) == (0, "3 variables, 3 of them the same in both\n")


def test_diff_finds_names_shapes_dtypes_and_values(save, capsys):
    import tensorflow as tf

    first = save(
        "a", only=np.ones(2), shape=np.ones(2), dtype=np.array([1, 2], "f4"), w=np.array([1.0, 2, 3]), same=np.ones(3)
    )
    second = save(
        "b",
        new=np.ones(3),
        shape=np.ones((2, 1)),
        dtype=tf.constant([1, 2.5], tf.bfloat16),
        w=np.array([1.0, 2.25, 2.5]),
        same=np.ones(3),
    )
    status, table, _ = run(capsys, "diff", first, second)
    assert status == 1
    assert [" ".join(line.split()) for line in table.splitlines()] == [
        "difference name first second elements max abs",
        "dtype dtype float32 bfloat16 1 0.5",
        "only in second new - (3,) - -",
        "only in first only (2,) - - -",
        "shape shape (2,) (2, 1) - -",
        "values w - - 2 0.5",
        "6 variables, 1 of them the same in both",
    ]
    status, text, _ = run(capsys, "diff", first, second, "--json")
    data = json.loads(text)
    assert (status, data["compared"], len(data["differences"])) == (1, 6, 5)
    assert data["differences"][-1] == {
        "name": "w",
        "kind": "values",
        "first": "",
        "second": "",
        "count": 2,
        "max_abs": 0.5,
    }


@pytest.mark.parametrize(
    ("first", "second", "count", "max_abs"),
    [
        (np.array([2**62 + 1, 5]), np.array([2**62, 5]), 1, 1),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 1, 2.0**64),
        (np.array([0, 255], np.uint8), np.array([255, 0], np.uint8), 2, 255),
        (np.array([True]), np.array([False]), 1, 1),
        (np.array([1.0, 2.0]), np.array([np.nan, 2.0]), 1, None),
        (np.array([3j]), np.array([4 + 0j]), 1, 5),
        (np.array(["a", "b"]), np.array(["a", "c"]), 1, None),
    ],
)
def test_diff_is_exact(tmp_path, capsys, first, second, count, max_abs):
    np.savez(tmp_path / "a.npz", w=first)
    np.savez(tmp_path / "b.npz", w=second)
    _, text, _ = run(capsys, "diff", tmp_path / "a.npz", tmp_path / "b.npz", "--json")
    (difference,) = json.loads(text)["differences"]
    assert (difference["count"], difference["max_abs"]) == (count, max_abs)


# to-npz


def test_numpy_reads_the_result_of_to_npz(save, tmp_path, capsys):
    import tensorflow as tf

    half = tf.constant([1.5, -3.389e38, float("inf")], tf.bfloat16)
    prefix = save("model-5", conv__w=np.arange(6.0).reshape(2, 3), text=["a", "bcd"], half=half, step=np.int64(5))
    status, text, errors = run(capsys, "to-npz", prefix, tmp_path / "x.npz")
    assert (status, errors) == (0, "")
    assert "x.npz: 4 variables" in text and "1 of them" in text and "float32 without loss" in text
    with np.load(tmp_path / "x.npz") as found:
        assert sorted(found) == ["conv/w", "half", "step", "text"]
        np.testing.assert_array_equal(found["conv/w"], np.arange(6.0).reshape(2, 3))
        assert found["text"].tolist() == [b"a", b"bcd"] and found["step"] == 5
        assert found["half"].dtype == np.float32
        np.testing.assert_array_equal(found["half"].astype(half.dtype.as_numpy_dtype), half.numpy())
    assert run(capsys, "diff", prefix, tmp_path / "x.npz")[1].count("float32  0  ") == 1
    assert (tmp_path / "x.npz").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_to_npz_is_deterministic(save, tmp_path, capsys):
    prefix = save("model-5", w=np.ones(3))
    for name in ("x.npz", "y.npz"):
        assert run(capsys, "to-npz", prefix, tmp_path / name)[0] == 0
    assert (tmp_path / "x.npz").read_bytes() == (tmp_path / "y.npz").read_bytes()


def test_to_npz_overwrites_only_with_force(save, tmp_path, capsys):
    prefix = save("model-5", w=np.ones(3))
    out = tmp_path / "x.npz"
    out.write_text("precious")
    assert "--force" in error_of(capsys, "to-npz", prefix, out)
    assert out.read_text() == "precious"
    assert run(capsys, "to-npz", prefix, out, "--force")[0] == 0
    assert np.load(out)["w"].tolist() == [1, 1, 1]


def test_to_npz_keeps_the_old_file_if_it_fails(save, tmp_path, capsys):
    prefix = save("model-5", a=np.ones(3), b=np.ones(3))
    data = Path(f"{prefix}.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:-1])
    out = tmp_path / "x.npz"
    out.write_text("precious")
    before = sorted(os.listdir(tmp_path))
    assert str(data) in error_of(capsys, "to-npz", prefix, out, "--force")
    assert out.read_text() == "precious" and sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("out", "message"), [("x.txt", "does not end in .npz"), ("nowhere/x.npz", "No such file or directory")]
)
def test_to_npz_to_an_invalid_path_is_an_error(save, tmp_path, capsys, out, message):
    assert message in error_of(capsys, "to-npz", save("model-5", w=np.ones(3)), tmp_path / out)


def test_to_npz_refuses_strings_that_numpy_would_cut(save, tmp_path, capsys):
    error = error_of(capsys, "to-npz", save("model-5", text=[b"a\0", b"bcd"]), tmp_path / "x.npz")
    assert "'text'" in error and os.listdir(tmp_path).count("x.npz") == 0


def test_to_npz_converts_an_object_based_checkpoint(tmp_path, capsys):
    import tensorflow as tf

    prefix = tf.train.Checkpoint(w=tf.Variable([1.0])).save(str(tmp_path / "ckpt"))
    assert run(capsys, "to-npz", prefix, tmp_path / "x.npz")[0] == 0
    with np.load(tmp_path / "x.npz") as found:
        assert sorted(found) == [f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in ("save_counter", "w")]


# Errors.


@pytest.mark.parametrize("arguments", [("show",), ("show", "--values", "w"), ("diff",)])
@pytest.mark.parametrize("path", ["nowhere", "x.npz", "empty", "torn.npz", "torn"])
def test_an_unreadable_checkpoint_is_an_error_that_names_it(tmp_path, capsys, arguments, path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "torn.npz").write_bytes(b"PK")
    (tmp_path / "torn.index").write_bytes(b"x" * 100)
    paths = [tmp_path / path] * (2 if arguments == ("diff",) else 1)
    assert str(tmp_path / path) in error_of(capsys, *arguments[:1], *paths, *arguments[1:])


@pytest.mark.parametrize("arguments", [[], ["ls"], ["show"], ["diff", "a"], ["nothing"]])
def test_missing_arguments_are_wrong_usage(capsys, arguments):
    assert main(["checkpoint", *arguments]) == 2
    assert "Usage: tpk checkpoint" in capsys.readouterr().err
