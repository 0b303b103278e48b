"""The GAN on the digits, in a short form, on every strategy."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

pytestmark = pytest.mark.once

EXAMPLE = Path(__file__).parents[2] / "examples" / "gan_digits.py"


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
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options.split(), "--max-epoch", "2", "--run-dir", str(tmp_path)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")

    first, second = (decoded(tmp_path / f"digits-00{epoch}.png") for epoch in (1, 2))
    assert first.shape == (320, 320, 1)
    assert first.std() > 10
    assert (first != second).any()
    assert np.array_equal(images_in_tensorboard(tmp_path), [first, second])
    assert (tmp_path / "checkpoint").exists()


def decoded(path):
    return tf.io.decode_png(path.read_bytes()).numpy()


def images_in_tensorboard(run_dir):
    (path,) = run_dir.glob("events.out.tfevents.*")
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    values = [value for event in events for value in event.summary.value if value.tag.startswith("digits")]
    return [tf.io.decode_png(value.image.encoded_image_string).numpy() for value in values]
