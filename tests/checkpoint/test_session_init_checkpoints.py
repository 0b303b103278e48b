"""Checkpoints of other programs, and damaged ones."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk.checkpoint import CheckpointReader, DictRestore, SaverRestore, find_checkpoint
from tpk.errors import CheckpointError

v1 = tf.compat.v1


def variables(partitions, value):
    """Build the graph of a program: one variable that may be in parts, one that is not."""
    partitioner = v1.fixed_size_partitioner(partitions) if partitions else None
    with v1.variable_scope("net", partitioner=partitioner):
        v1.get_variable("w", [7, 2], initializer=v1.constant_initializer(value))
    return v1.get_variable("b", [2], initializer=v1.zeros_initializer())


@pytest.fixture(scope="module")
def weights():
    return np.arange(14, dtype="f4").reshape(7, 2)


@pytest.fixture
def write(tmp_path, weights):
    """Return a function that runs another program, which writes a checkpoint, and returns its prefix."""

    def write(name="model.ckpt", partitions=0, **options):
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as sess:
            variables(partitions, weights if not partitions else 1.0)
            sess.run(v1.global_variables_initializer())
            for part in v1.global_variables("net") if partitions else ():
                start = part._save_slice_info.var_offset[0]
                sess.run(part.initializer, {part.initializer.inputs[1]: weights[start : start + part.shape[0]]})
            (tmp_path / name).parent.mkdir(exist_ok=True)
            return v1.train.Saver(**options).save(sess, str(tmp_path / name))

    return write


def restored(init, partitions=0):
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as sess:
        bias = variables(partitions, 0.0)
        sess.run(v1.global_variables_initializer())
        graph.finalize()
        init.run(sess)
        return np.concatenate(sess.run(v1.global_variables("net"))), sess.run(bias)


@pytest.mark.parametrize("in_graph", [0, 3])
@pytest.mark.parametrize("stored", [0, 2])
def test_partitioned_variables_are_restored_into_any_partition(write, weights, stored, in_graph):
    found, _ = restored(SaverRestore(write(partitions=stored)), in_graph)
    np.testing.assert_array_equal(found, weights)


def test_partitioned_variables_are_restored_from_a_dictionary_of_wholes_or_parts(weights):
    found, _ = restored(DictRestore({"net/w": weights}), 2)
    np.testing.assert_array_equal(found, weights)
    found, _ = restored(DictRestore({"net/w/part_0": weights[:4], "net/w/part_1": weights[4:]}), 2)
    np.testing.assert_array_equal(found, weights)


def test_a_whole_that_does_not_fit_its_parts_is_an_error(weights):
    with pytest.raises(CheckpointError, match=r"'net/w/part_1' has shape \(7, 2\), the value for it \(6, 2\)"):
        restored(DictRestore({"net/w": weights[:6]}), 2)


@pytest.mark.parametrize("options", [{"sharded": True}, {"write_version": 1}], ids=["sharded", "first format"])
def test_other_formats_of_savers_are_restored(write, weights, options):
    found, _ = restored(SaverRestore(write(**options)))
    np.testing.assert_array_equal(found, weights)


@pytest.mark.parametrize(
    "name", ["model.ckpt", "model.ckpt.index", "model.ckpt.meta", "model.ckpt.data-00000-of-00001", "checkpoint", "."]
)
def test_a_checkpoint_may_be_named_by_any_of_its_files(write, tmp_path, name):
    prefix = write()
    assert find_checkpoint(tmp_path / name).removeprefix(f"{tmp_path}/./") in (prefix, "model.ckpt")
    assert "net/w" in CheckpointReader(find_checkpoint(tmp_path / name))


def test_a_directory_that_was_moved_names_what_it_has(write, tmp_path):
    prefix = write("old/model.ckpt")
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(CheckpointError) as caught:
        SaverRestore(tmp_path / "new")
    assert prefix in str(caught.value)
    assert f"Give the path of one of these: {tmp_path / 'new' / 'model.ckpt'}" in str(caught.value)


@pytest.mark.parametrize(
    "pointer",
    ["../other/model.ckpt", "{}/other/model.ckpt", "../run/../other/model.ckpt", "*", "model.*", "m?del.ckpt", "."],
)
def test_a_pointer_leads_to_no_other_directory_and_is_no_pattern(write, tmp_path, pointer):
    write("other/model.ckpt")
    prefix = write("run/model.ckpt")
    (tmp_path / "run" / "checkpoint").write_text(f'model_checkpoint_path: "{pointer.format(tmp_path)}"\n')
    for path in (tmp_path / "run", tmp_path / "run" / "checkpoint"):
        with pytest.raises(CheckpointError, match="which is not a checkpoint in that directory") as caught:
            find_checkpoint(path)
        assert f"Give the path of one of these: {prefix}" in str(caught.value)


def test_a_pointer_may_say_where_it_is_itself(write, tmp_path):
    prefix = write("run/model.ckpt")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for pointer in (prefix, "../run/model.ckpt", str(tmp_path / "link" / "model.ckpt")):
        (tmp_path / "run" / "checkpoint").write_text(f'model_checkpoint_path: "{pointer}"\n')
        assert find_checkpoint(tmp_path / "run") == prefix
        assert find_checkpoint(tmp_path / "link") == str(tmp_path / "link" / "model.ckpt")


@pytest.mark.parametrize(
    "content", [b"", b'model_checkpoint_path: ""', b"\xff", b"nonsense", b"model_checkpoint_path: 5"]
)
def test_a_damaged_pointer_is_an_error_that_names_what_is_there(write, tmp_path, content):
    prefix = write("run/model.ckpt")
    (tmp_path / "run" / "checkpoint").write_bytes(content)
    message = f"there is no checkpoint in the directory .*Give the path of one of these: {prefix}"
    with pytest.raises(CheckpointError, match=message):
        find_checkpoint(tmp_path / "run")


def test_for_a_run_that_saved_none_it_is_said_what_saves_them(tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint in the directory .*'ModelSaver' saves checkpoints"):
        find_checkpoint(tmp_path)


def test_an_object_based_checkpoint_is_an_error_whose_remedy_works(tmp_path, weights):
    model = tf.Module()
    model.net, model.bias = tf.Variable(weights, name="net/w"), tf.Variable([1.0, 2.0], name="b")
    prefix = tf.train.Checkpoint(model=model).save(str(tmp_path / "ckpt"))
    with pytest.raises(CheckpointError) as caught:
        restored(SaverRestore(prefix))
    message = str(caught.value)
    assert "tf.train.Checkpoint" in message and prefix in message
    assert "'net/w' is under 'model/net/.ATTRIBUTES/VARIABLE_VALUE'" in message
    code = message[message.index("values = ") : message.index("; tpk.DictRestore")]
    names = {"tpk": tpk}
    exec(code, names)
    values = names["values"]
    found, bias = restored(
        DictRestore(
            {name: values[key] for name, key in values.keys_by_variable_name().items() if name != "save_counter"}
        )
    )
    np.testing.assert_array_equal(found, weights)
    assert bias.tolist() == [1, 2]


@pytest.fixture
def damaged(write, tmp_path):
    """Return a function that damages a file of a checkpoint; it returns the file and the prefix."""
    prefix = write("good/model-3", write_version=2)

    def damage(suffix, change):
        shutil.copytree(tmp_path / "good", tmp_path / "bad", dirs_exist_ok=True)
        path = tmp_path / "bad" / f"model-3{suffix}"
        data = change((tmp_path / "good" / path.name).read_bytes())
        path.write_bytes(data)
        return path, str(tmp_path / "bad" / "model-3")

    assert find_checkpoint(prefix) == prefix
    return damage


def flip(position):
    def change(data):
        changed = bytearray(data)
        changed[position] ^= 0x10
        return bytes(changed)

    return change


CHANGES = {
    "empty": lambda data: b"",
    "first byte": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "zeros": lambda data: bytes(len(data)),
    "flipped": flip(9),
    "flipped late": flip(-1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_a_damaged_checkpoint_is_an_error_that_names_the_file(damaged, suffix, change):
    path, prefix = damaged(suffix, CHANGES[change])
    with pytest.raises(CheckpointError, match="is torn or damaged") as caught:
        restored(SaverRestore(prefix))
    assert str(path) in str(caught.value)
    assert f"tpk checkpoint ls {path.parent}`" in str(caught.value)


def test_a_checkpoint_without_its_data_is_an_error(damaged):
    path, prefix = damaged(".data-00000-of-00001", lambda data: data)
    path.unlink()
    with pytest.raises(CheckpointError, match="model-3"):
        restored(SaverRestore(prefix))


def test_flips_anywhere_give_an_error_or_the_right_values(damaged, write, weights):
    """Most of the bytes are under a checksum; what is not has no meaning."""
    errors = 0
    for position in range(0, 300, 7):
        for suffix in (".index", ".data-00000-of-00001"):
            _, prefix = damaged(suffix, lambda data, position=position: flip(position % len(data))(data))
            try:
                values = CheckpointReader(prefix)
                np.testing.assert_array_equal(values["net/w"], weights)
                assert values["b"].shape == (2,)
            except CheckpointError:
                errors += 1
    assert errors > 60
