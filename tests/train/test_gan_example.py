"""The GAN examples, in a short form, on several strategies."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.once

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "options",
    [
        "--strategy single --update in_turn",
        "--strategy replicated --devices 2 --update together --every 2",
        "--strategy parameter_server --devices 2 --update in_turn",
    ],
)
@pytest.mark.tf2_only("decodes images in eager mode")
def test_the_digits_of_each_epoch_are_written(options, tmp_path, monkeypatch):
    run("gan_digits.py", options, tmp_path, monkeypatch)

    first, second = (decoded(tmp_path / f"digits-00{epoch}.png") for epoch in (1, 2))
    assert first.shape == (320, 320, 1)
    assert first.std() > 10
    assert (first != second).any()
    assert np.array_equal(images_in_tensorboard(tmp_path), [first, second])
    assert (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("options", ["--strategy single", "--strategy replicated --devices 2"])
@pytest.mark.tf2_only("decodes images in eager mode")
def test_the_conditional_gan_draws_each_digit(options, tmp_path, monkeypatch):
    run("conditional_gan.py", options, tmp_path, monkeypatch)

    first, second = (decoded(tmp_path / f"digits-00{epoch}.png") for epoch in (1, 2))
    assert first.shape == (400, 320, 1)
    assert (first != second).any()
    # The rows share their noise, so only the label makes them differ.
    rows = second.reshape(10, -1)
    assert all((rows[0] != row).any() for row in rows[1:])


@pytest.mark.parametrize("options", ["--strategy single", "--strategy replicated --devices 2"])
@pytest.mark.tf2_only("decodes images in eager mode")
def test_the_image_to_image_gan_learns_to_paint(options, tmp_path, monkeypatch):
    run("image_to_image.py", options, tmp_path, monkeypatch)

    outlines, painted, images = np.split(decoded(tmp_path / "pairs-002.png").astype(np.float32), 3)
    assert outlines.shape == (64, 512, 3)
    assert np.abs(painted - images).mean() < 0.5 * np.abs(images - images.mean((0, 1))).mean()


def run(example, options, run_dir, monkeypatch):
    path = str(EXAMPLES / example)
    monkeypatch.setattr(sys, "argv", [path, *options.split(), "--max-epoch", "2", "--run-dir", str(run_dir)])
    runpy.run_path(path, run_name="__main__")


def decoded(path):
    return tf.io.decode_png(path.read_bytes()).numpy()


def images_in_tensorboard(run_dir):
    (path,) = run_dir.glob("events.out.tfevents.*")
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    values = [value for event in events for value in event.summary.value if value.tag.startswith("digits")]
    return [tf.io.decode_png(value.image.encoded_image_string).numpy() for value in values]
