"""The training of a ResNet on folders of images, in a short form: a small network, and images of noise."""

from __future__ import annotations

import argparse
import json
import random
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import tpk

pytestmark = pytest.mark.once

v1 = tf.compat.v1

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet.py"


@pytest.fixture
def example():
    names = runpy.run_path(str(EXAMPLE), run_name="resnet_example")
    names["BLOCKS"][50] = (1, 1, 1, 1)
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four classes, each with three images to train on, and two others."""
    root, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for name in [f"{split}/class{number}" for split in ("train", "val") for number in range(4)]:
        (root / name).mkdir(parents=True)
        for number in range(3 if "train" in name else 2):
            pixels = rng.integers(0, 256, [rng.integers(40, 80), rng.integers(40, 80), 3]).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.jpg")
    return root


def train(example, monkeypatch, folder, run_dir, options):
    short = f"--data {folder} --image-size 32 --batch 4 --workers 2 --run-dir {run_dir}"
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *short.split(), *options.split()])
    example["main"]()
    return [json.loads(line) for line in (run_dir / "stats.jsonl").read_text().splitlines()]


@pytest.mark.timeout(300)
def test_it_trains_evaluates_saves_and_goes_on(example, folder, tmp_path, monkeypatch):
    train(example, monkeypatch, folder, tmp_path, "--precision float16 --max-epoch 1")
    assert (tmp_path / "model-3.index").exists()  # 12 images in batches of 4
    assert list(tmp_path.glob("min-validation_error_top1-*.index"))

    stats = train(example, monkeypatch, folder, tmp_path, "--precision float16 --max-epoch 2 --resume must")
    assert [each["global_step"] for each in stats] == [3, 6]
    for epoch in stats:
        assert 0 < epoch["cost"] < 10
        assert 0 <= epoch["validation_error_top5"] <= epoch["validation_error_top1"] <= 1


@pytest.mark.timeout(300)
def test_the_strategy_is_one_word_and_the_learning_rate_follows(example, folder, tmp_path, monkeypatch):
    options = "--strategy replicated --devices 2 --warm-up 0 --schedule steps --max-epoch 1 --steps-per-epoch 2"
    (epoch,) = train(example, monkeypatch, folder, tmp_path, options)
    assert epoch["global_step"] == 2
    # 4 images on each of 2 devices; in its last ninth.
    assert epoch["learning_rate"] == pytest.approx(0.1 * 8 / 256 * 1e-3)


def test_workers_need_no_tensorflow(example, folder):
    files = example["find_images"](folder / "train")
    arguments = argparse.Namespace(image_size=16, batch=3, workers=1)
    flow = example["batches"](files, [f"class{number}" for number in range(4)], arguments, training=True)
    flow = tpk.MapData(flow.flow, lambda batch: [*batch, "tensorflow" in sys.modules])
    (images, labels, has_tensorflow), *_ = tpk.MultiProcessRunner(flow, 1)
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == ((3, 16, 16, 3), np.uint8, (3,), np.int64)
    assert not has_tensorflow


def test_validation_has_each_image_once_with_its_label(example, folder):
    files = example["find_images"](folder / "val")
    arguments = argparse.Namespace(image_size=16, batch=3, workers=2)
    flow = example["batches"](files, [f"class{number}" for number in range(4)], arguments, training=False)
    assert [labels.tolist() for _, labels in flow] == [[0, 0, 1], [1, 2, 2], [3, 3]]


def test_random_boxes_are_within_the_image_and_differ(example):
    random.seed(0)
    for size in ((500, 375), (20, 400), (1, 1)):
        boxes = [example["random_box"](*size) for _ in range(100)]
        assert all(0 <= left < right <= size[0] and 0 <= top < bottom <= size[1] for left, top, right, bottom in boxes)
    assert len({example["random_box"](500, 375) for _ in range(100)}) > 90


def test_an_empty_folder_is_named(example, tmp_path):
    with pytest.raises(SystemExit, match=r"no images in .*: expected .*/<class>/<image>.jpg"):
        example["find_images"](tmp_path)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    # Of 10 epochs 2 to warm up; the peak is 0.1 * 512 / 256.
    [("cosine", {0.5: 0.05, 1.0: 0.1, 6.0: 0.1, 10.0: 0.0}), ("steps", {1.0: 0.1, 3.0: 0.2, 4.0: 0.02, 9.5: 0.0002})],
)
def test_the_learning_rate_rises_and_falls(example, schedule, expected):
    options = {"batch": 64, "steps_per_epoch": None, "warm_up": 2, "max_epoch": 10, "schedule": schedule, "rate": 0.1}
    strategy = argparse.Namespace(num_replicas=4, world_size=2)
    model = example["ResNet"](argparse.Namespace(**options), classes=4, images=51_300, strategy=strategy)
    with tf.Graph().as_default(), v1.Session() as sess:
        step, rate = tpk.get_global_step_var(), model.learning_rate()
        found = {}
        for epoch in expected:
            step.load(round(epoch * 100) - 1, sess)
            found[epoch] = sess.run(rate)
    assert found == pytest.approx(expected, abs=1e-6)


def test_kernels_decay_and_blocks_begin_as_identities(example):
    options = {"batch": 256, "steps_per_epoch": 100, "warm_up": 0, "max_epoch": 1, "schedule": "steps", "rate": 0.1}
    trainer = tpk.SingleCostTrainer("single")
    trainer.resolve_plugins()
    arguments = argparse.Namespace(image_size=32, depth=50, **options)
    model = example["ResNet"](arguments, classes=4, images=0, strategy=trainer.strategy)
    trainer.setup_graph(
        model.get_input_signature(),
        tpk.DummyConstantInput([[1, 32, 32, 3], [1]]),
        model.build_graph,
        model.get_optimizer,
    )
    with trainer.graph.as_default(), v1.Session() as sess:
        (optimizer,) = [model.get_optimizer()]
        decayed = optimizer.apply_gradients([(tf.zeros_like(each), each) for each in v1.trainable_variables()])
        sess.run(v1.global_variables_initializer())
        before = {each.op.name: each for each in v1.trainable_variables()}
        values = sess.run(before)
        sess.run(decayed)
        after = sess.run(before)
    changed = {name for name, value in values.items() if (after[name] != value).any()}
    assert changed == {name for name in values if name.endswith("/kernel")}
    assert not values["group0/block0/batch_normalization_3/gamma"].any()
