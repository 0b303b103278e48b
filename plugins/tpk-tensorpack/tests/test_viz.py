"""Visualization of images, and information about GPUs."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tpk_tensorpack.utils import nvml, viz

cv2 = pytest.importorskip("cv2")

PATCHES = [np.full([6, 5, 3], number, np.uint8) for number in range(5)]


def test_images_stand_side_by_side():
    canvas = viz.stack_patches(PATCHES, 2, 3)
    assert (canvas.shape, canvas.dtype) == ((12, 15, 3), np.uint8)
    assert canvas[::6, ::5, 0].tolist() == [[0, 1, 2], [3, 4, 255]]
    bordered = viz.stack_patches(PATCHES, 2, 3, border=4, bgcolor=(1, 2, 3))
    assert bordered.shape == (16, 23, 3)
    assert bordered[7, 7].tolist() == [1, 2, 3]
    assert bordered[10, 9].tolist() == [4, 4, 4]
    assert viz.stack_patches(np.zeros([2, 4, 4]), 1, 2).shape == (4, 8, 1)


def test_the_default_border_is_a_twentieth_of_the_smaller_side():
    images = np.zeros([8, 40, 60, 3])
    assert viz.stack_patches(images, 2, 4).shape == (82, 246, 3)
    assert viz.stack_patches(images, 2, 4, border=0).shape == (80, 240, 3)
    assert [each.shape for each in viz.gen_stack_patches(images, max_width=200, max_height=130)] == [(124, 184, 3)]


def test_gray_images_on_a_background_with_colors_make_a_canvas_with_colors():
    canvas = viz.stack_patches(np.full([3, 6, 5], 7), 1, 3, border=2, bgcolor=(1, 2, 3))
    assert canvas.shape == (6, 19, 3)
    assert canvas[0, 4:6].tolist() == [[7, 7, 7], [1, 2, 3]]


def test_smaller_images_are_in_the_middle_of_their_places():
    canvas = viz.stack_patches([PATCHES[0], np.ones([3, 4, 3], np.uint8)], 1, 2, pad=True)
    assert canvas.shape == (6, 10, 3)
    assert np.argwhere(canvas[:, :, 0] == 1).min(axis=0).tolist() == [1, 5]
    assert np.argwhere(canvas[:, :, 0] == 1).max(axis=0).tolist() == [3, 8]


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        (PATCHES, "5 images do not fit in 1 rows of 3"),
        ([PATCHES[0], np.ones([3, 4, 3])], "pad=True"),
        ([], "no image"),
    ],
)
def test_what_cannot_be_shown_is_an_error(patches, message):
    with pytest.raises(ValueError, match=message):
        viz.stack_patches(patches, 1, 3)


def test_many_images_take_several_canvases():
    canvases = list(viz.gen_stack_patches(PATCHES, nr_row=1, nr_col=2))
    assert [canvas[0, ::5, 0].tolist() for canvas in canvases] == [[0, 1], [2, 3], [4, 255]]
    assert [canvas.shape for canvas in viz.gen_stack_patches(PATCHES, max_width=13, max_height=14)] == [(12, 10, 3)] * 2
    with pytest.raises(ValueError, match="an image of 6x5 does not fit in 14x4"):
        next(viz.gen_stack_patches(PATCHES, max_width=4, max_height=14))


def test_images_of_a_data_flow_are_written_to_files(tmp_path):
    flow = [[np.full([2, 8, 6, 3], [200.0, 100, 0])], [np.zeros([1, 8, 6, 3])], [np.zeros([1, 8, 6, 3])]]
    viz.dump_dataflow_images(flow, number=2, output_dir=str(tmp_path / "images"), resize=(16, 12), flipRGB=True)
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == ["000-0.jpg", "000-1.jpg", "001-0.jpg"]
    image = cv2.imread(str(tmp_path / "images" / "000-1.jpg"))
    assert image.shape == (16, 12, 3)
    np.testing.assert_allclose(image[4, 4], [0, 100, 200], atol=3)


def test_intensities_become_colors(monkeypatch):
    pytest.importorskip("matplotlib")
    intensity = np.float32([[0, 255], [51, 102]])
    colors = viz.intensity_to_rgb(intensity, cmap="gray")
    assert colors.shape == (2, 2, 3)
    np.testing.assert_allclose(colors[:, :, 0], intensity, atol=1.1)
    np.testing.assert_allclose(viz.intensity_to_rgb(intensity / 255, cmap="gray", normalize=True), colors, atol=1.1)
    assert np.isfinite(viz.intensity_to_rgb(np.zeros([2, 2]), normalize=True)).all()
    with pytest.raises(ValueError, match=r"shape \[height, width\]"):
        viz.intensity_to_rgb(np.zeros(3))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        viz.intensity_to_rgb(intensity)


def test_boxes_and_labels_are_drawn():
    image = np.full([60, 80, 3], 100, np.uint8)
    boxes = [[5, 15, 40, 40], [50, 20, 70, 50]]
    drawn = viz.draw_boxes(image, boxes, color=(255, 0, 0))
    assert drawn[15, 5].tolist() == drawn[50, 70].tolist() == [255, 0, 0]
    assert drawn[30, 20].tolist() == [100, 100, 100]
    assert (image == 100).all()
    labeled = viz.draw_boxes(image[:, :, 0], boxes, labels=["a", "bb"])
    assert labeled[40, 40].tolist() == labeled[50, 70].tolist() == [15, 128, 15]
    assert (labeled[5:14, 6:10] != 100).any()
    with pytest.raises(ValueError, match="within the image of 60x80"):
        viz.draw_boxes(image, [[5, 5, 4, 9]])
    with pytest.raises(ValueError, match="1 labels for 2 boxes"):
        viz.draw_boxes(image, boxes, labels=["a"])


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ImportError, match=r"pip install 'tpk-tensorpack\[images\]'"):
        viz.draw_boxes(PATCHES[0], [[1, 1, 3, 3]])
    with pytest.raises(ImportError, match="pip install nvidia-ml-py"):
        nvml.NVMLContext().__enter__()
    with pytest.raises(ValueError, match="key_cb_<key>"):
        viz.interactive_imshow(PATCHES[0], key_callback=print)
