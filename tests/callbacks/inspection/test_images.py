"""Images of tensors and parameters: in files that an image library reads, and in the monitors."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from guarded_trainings import REPLICATED, cost, data, train
from PIL import Image

import tpk
from tpk.callbacks import DumpParamAsImage, DumpTensorAsImage
from tpk.errors import ConfigError, TowerError

v1 = tf.compat.v1


class Images(tpk.Monitor):
    def __init__(self):
        self.taken = []

    def process_image(self, name, images):
        self.taken.append((self.trainer.global_step, name, images))


def pictures(x):
    """Images of x in each form."""
    grey = tf.reshape(tf.tile(x[:, None] - 1, [1, 3]), [2, 3], name="grey")
    tf.identity(tf.stack([grey] * 3, axis=-1)[None], name="a/colored")
    tf.identity(tf.cast(tf.stack([grey, grey])[..., None] * 300 - 10, tf.int32), name="two")
    tf.identity(tf.cast(grey, tf.bfloat16), name="half")
    tf.identity(grey > 0.5, name="mask")
    return cost(x)


def grey_of(step):
    return np.rint(np.tile(data()[step - 1][0][:, None] - 1, [1, 3]) * 255).astype(np.uint8)


def read(path):
    return np.asarray(Image.open(path))


def names_in(folder):
    return {path.name for path in folder.glob("*.png")}


def test_an_image_is_a_file_and_goes_to_the_monitors(tmp_path):
    images = Images()
    callbacks = [DumpTensorAsImage("a/colored", every_k_steps=2), DumpTensorAsImage("mask", "prefix", every_k_steps=6)]
    train(DumpTensorAsImage("grey:0", every_k_steps=3), tmp_path, func=pictures, callbacks=callbacks, monitors=[images])
    assert names_in(tmp_path) == {
        *("grey-3.png", "grey-6.png"),
        *("a.colored-2.png", "a.colored-4.png", "a.colored-6.png"),
        "prefix-6.png",
    }
    np.testing.assert_allclose(read(tmp_path / "grey-3.png"), grey_of(3), atol=1)
    assert read(tmp_path / "a.colored-4.png").shape == (2, 3, 3)
    assert set(np.unique(read(tmp_path / "prefix-6.png"))) <= {0, 255}
    by_place = {(step, name): array for step, name, array in images.taken}
    np.testing.assert_array_equal(by_place[6, "grey"][0, ..., 0], read(tmp_path / "grey-6.png"))
    assert by_place[2, "a/colored"].shape == (1, 2, 3, 3)
    assert (6, "prefix") in by_place


@pytest.mark.parametrize("strategy", ["single", REPLICATED], ids=str)
def test_several_images_are_numbered_and_whole_numbers_are_clipped(tmp_path, strategy):
    images = Images()
    first = DumpTensorAsImage("two", every_k_steps=6)
    train(
        first,
        tmp_path,
        func=pictures,
        strategy=strategy,
        monitors=[images],
        callbacks=[DumpTensorAsImage("two", "one", lambda value: value[0], every_k_steps=6)],
    )
    assert names_in(tmp_path) == {"two-6-0.png", "two-6-1.png", "one-6.png"}
    row = data()[5 if strategy == "single" else 10][0]
    expected = np.clip(((np.tile(row[:, None] - 1, [1, 3])) * 300 - 10).astype(np.int32), 0, 255)
    np.testing.assert_allclose(read(tmp_path / "two-6-1.png"), expected, atol=1)
    assert [array.shape for _, _, array in images.taken] == [(2, 2, 3, 1), (1, 2, 3, 1)]


def test_a_function_makes_images_of_what_is_none(tmp_path):
    images = Images()

    def both(value):
        return [np.full((2, 2), 0.5), np.full((3, 1, 4), 200, np.uint8)]

    train(DumpTensorAsImage("x", map_func=both, every_k_steps=6), tmp_path, monitors=[images])
    assert read(tmp_path / "x-6-0.png").tolist() == [[128, 128], [128, 128]]
    assert read(tmp_path / "x-6-1.png").shape == (3, 1, 4)
    assert [(name, array.shape) for _, name, array in images.taken] == [("x/0", (1, 2, 2, 1)), ("x/1", (1, 3, 1, 4))]


def test_at_most_ten_images_of_a_value_are_saved(tmp_path):
    train(DumpTensorAsImage("x", map_func=lambda value: np.zeros((12, 2, 2, 1)), every_k_steps=6), tmp_path)
    assert names_in(tmp_path) == {f"x-6-{number}.png" for number in range(10)}


def test_a_type_that_numpy_does_not_have_is_an_image_too(tmp_path):
    train(DumpTensorAsImage("half", every_k_steps=6), tmp_path, func=pictures)
    np.testing.assert_allclose(read(tmp_path / "half-6.png"), grey_of(6), atol=2)


def with_kernel(x):
    with v1.variable_scope("conv"):
        kernel = np.arange(2 * 3 * 1 * 4, dtype=np.float32).reshape(2, 3, 1, 4)
        v1.get_variable("W", initializer=kernel, trainable=False)
        v1.get_variable("flat", initializer=np.full([2, 2], 7.0, np.float32), trainable=False)
        v1.get_variable("b", initializer=np.zeros([5], np.float32), trainable=False)
    return cost(x)


@pytest.mark.parametrize("strategy", ["single", REPLICATED, tpk.use("parameter_server", devices=2)], ids=str)
def test_a_kernel_is_one_image_for_each_filter_at_the_end_of_an_epoch(tmp_path, strategy):
    images = Images()
    train(
        DumpParamAsImage("conv/W"),
        tmp_path,
        func=with_kernel,
        strategy=strategy,
        epochs=2,
        monitors=[images],
        callbacks=[tpk.PeriodicTrigger(DumpParamAsImage("conv/flat", "flat"), every_k_steps=5)],
    )
    kernels = {f"conv.W-{step}-{number}.png" for step in (6, 12) for number in range(4)}
    assert names_in(tmp_path) == kernels | {"flat-5.png", "flat-10.png"}
    kernel = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(read(tmp_path / "conv.W-6-1.png"), np.rint(kernel[..., 1] / 23 * 255))
    assert read(tmp_path / "flat-5.png").tolist() == [[0, 0], [0, 0]]
    assert [(step, name) for step, name, _ in images.taken if name == "conv/W"] == [(6, "conv/W"), (12, "conv/W")]


def test_a_parameter_may_be_a_variable_and_have_a_function(tmp_path):
    with tf.Graph().as_default():
        trainer = tpk.Trainer()
        w = v1.get_variable("w", initializer=0.0)
        trainer.train_op = w.assign_add(0.25)
        dump = DumpParamAsImage(w, map_func=lambda value: np.full((1, 1), value))
        trainer.train(callbacks=[dump], steps_per_epoch=2, max_epoch=1, run_dir=tmp_path)
    assert read(tmp_path / "w-2.png").tolist() == [[128]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DumpTensorAsImage("x", every_k_steps=6),
            r"DumpTensorAsImage: 'x' is not an image: float32 of shape \(2,\)",
        ),
        (lambda: DumpTensorAsImage("text"), "is not an image: object.*Convert it with map_func"),
        (lambda: DumpParamAsImage("conv/b"), r"DumpParamAsImage: 'conv/b' is not an image: float64 of shape \(5,\)"),
        (lambda: DumpParamAsImage(["w"]), r"expected a variable or the name of one, got \['w'\]"),
    ],
)
def test_what_is_no_image_is_told(tmp_path, make, message):
    def func(x):
        tf.strings.as_string(x[None], name="text")
        return with_kernel(x)

    with pytest.raises(ConfigError, match=message):
        train(make(), tmp_path, func=func)


def test_an_unknown_variable_is_told_with_the_nearest_names(tmp_path):
    with pytest.raises(TowerError, match=r"no variable 'conv/V'\. Nearest: .*conv/W"):
        train(DumpParamAsImage("conv/V"), tmp_path / "a", func=with_kernel)
    with tf.Graph().as_default():
        trainer = tpk.Trainer()
        trainer.train_op = v1.get_variable("weight", initializer=0.0).assign_add(1.0)
        with pytest.raises(TowerError, match=r"the graph has no variable 'wieght'\. Nearest: 'weight'"):
            trainer.train(
                callbacks=[DumpParamAsImage("wieght")], steps_per_epoch=1, max_epoch=1, run_dir=tmp_path / "b"
            )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DumpTensorAsImage(["x", "cost"]), "takes one tensor"),
        (lambda: DumpParamAsImage("w", map_func="grey"), r"DumpParamAsImage\(map_func='grey'\): expected a function"),
    ],
)
def test_wrong_options_are_told(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("make", [lambda: DumpTensorAsImage("x"), lambda: DumpParamAsImage("w")])
def test_images_need_a_directory(make):
    with pytest.raises(ConfigError, match="needs the directory of the run, but this run has none"):
        train(make())
