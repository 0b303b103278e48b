"""Augmentors: their random draws are replayed, and coordinates match the transformed image.

`nox -s port_oracle` compares all of them with tensorpack's.
"""

from __future__ import annotations

import logging
import pickle
import sys

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tpk_tensorpack.dataflow import (
    AugmentImageComponent,
    AugmentImageComponents,
    AugmentImageCoordinates,
    DataFromList,
    ImageFromFile,
    imgaug,
)

from tpk.errors import ConfigError, InputError

GEOMETRIC = {
    "flip": lambda: imgaug.Flip(horiz=True, prob=1),
    "flip down": lambda: imgaug.Flip(vert=True, prob=1),
    "transpose": lambda: imgaug.Transpose(prob=1),
    "crop": lambda: imgaug.RandomCrop((40, 44)),
    "center": lambda: imgaug.CenterCrop(48),
    "shape": lambda: imgaug.RandomCropRandomShape(40, 40),
    "inception": lambda: imgaug.GoogleNetRandomCropAndResize((0.5, 1.0), target_shape=64),
    "resize": lambda: imgaug.Resize((90, 80)),
    "shortest": lambda: imgaug.ResizeShortestEdge(100),
    "random size": lambda: imgaug.RandomResize((0.8, 1.5), (0.8, 1.5)),
    "shift": lambda: imgaug.Shift(0.1, 0.1),
    "rotation": lambda: imgaug.Rotation(30, (0.4, 0.6)),
    "valid": lambda: imgaug.RotationAndCropValid(15),
    "affine": lambda: imgaug.Affine((0.9, 1.2), (0.05, 0.05), rotate_max_deg=10.0, shear=5.0),
    "paste": lambda: imgaug.CenterPaste((90, 91)),
    "anywhere": lambda: imgaug.RandomPaste((90, 91)),
    "list": lambda: imgaug.AugmentorList([imgaug.ResizeShortestEdge(80), imgaug.Flip(horiz=True), imgaug.Shift(0.1)]),
}
WARPED = {"shift", "rotation", "valid", "affine", "list"}
"""Transforms whose coordinates are pixel centers, as in OpenCV's affine maps and in tensorpack."""


def seeded(augmentor, seed):
    augmentor.reset_state()
    augmentor.rng = np.random.RandomState(seed)
    for number, within in enumerate(getattr(augmentor, "augmentors", ())):
        within.rng = np.random.RandomState(seed + number)
    return augmentor


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**31), y=st.integers(26, 38), x=st.integers(26, 38))
@pytest.mark.parametrize("name", GEOMETRIC)
def test_a_point_goes_where_its_pixels_go(name, seed, y, x):
    image = np.zeros([64, 64], np.uint8)
    image[y - 2 : y + 3, x - 2 : x + 3] = 255
    transform = seeded(GEOMETRIC[name](), seed).get_transform(image)
    picture = transform.apply_image(image.copy())
    (moved,) = transform.apply_coords(np.array([[x + 0.5, y + 0.5]]))
    rows, columns = np.nonzero(picture > 127)
    if (
        len(rows) < 9
        or 0 in (rows.min(), columns.min())
        or np.any(picture[[-1]] > 127)
        or np.any(picture[:, [-1]] > 127)
    ):
        return  # at least partly cropped
    center = np.array([columns.mean() + 0.5, rows.mean() + 0.5])
    assert np.abs(moved - center).max() <= (1.1 if name in WARPED else 0.8)


@pytest.mark.parametrize("name", GEOMETRIC)
def test_a_transform_does_the_same_each_time_and_the_augmentor_does_so_from_the_same_state(name):
    image = np.random.RandomState(0).randint(256, size=(64, 64, 3)).astype(np.uint8)
    first = seeded(GEOMETRIC[name](), 3).get_transform(image)
    other = seeded(GEOMETRIC[name](), 3).get_transform(image)
    expected = first.apply_image(image.copy())
    np.testing.assert_array_equal(first.apply_image(image.copy()), expected)
    np.testing.assert_array_equal(other.apply_image(image.copy()), expected)


def test_what_opencv_does_is_its_reference():
    image = np.random.RandomState(0).randint(256, size=(20, 30, 3)).astype(np.uint8)
    np.testing.assert_array_equal(imgaug.Resize((10, 12)).augment(image), cv2.resize(image, (12, 10)))
    np.testing.assert_array_equal(
        imgaug.ColorSpace(cv2.COLOR_BGR2LAB).augment(image), cv2.cvtColor(image, cv2.COLOR_BGR2LAB)
    )
    turned = seeded(imgaug.Rotation(30), 1).get_transform(image)
    np.testing.assert_array_equal(
        turned.apply_image(image), cv2.warpAffine(image, turned.mat, (30, 20), borderMode=cv2.BORDER_REPLICATE)
    )


class Invert(imgaug.ImageAugmentor):
    """A custom augmentor."""

    def __init__(self, top=255):
        super().__init__()
        self._init(locals())

    def get_transform(self, img):
        return imgaug.TransformFactory(name="invert", apply_image=lambda img: self.top - img)


class Foreign:
    """The interface of an augmentor of the imgaug library."""

    def to_deterministic(self):
        return self


class Older(imgaug.ImageAugmentor):
    """A custom augmentor in the older style."""

    def _get_augment_params(self, img):
        return self._rand_range(5, 6)

    def _augment(self, img, param):
        return img + param

    def _augment_coords(self, coords, param):
        return coords - param


def test_augmentors_of_users_take_part():
    image = np.full([4, 4], 5.0, np.float32)
    augmentor = imgaug.AugmentorList([Invert(10), Older()])
    transform = augmentor.get_transform(image)
    added = transform.apply_image(image) - 5
    assert 5 <= added.min() == added.max() <= 6
    with pytest.raises(NotImplementedError, match="does not implement apply_coords"):
        transform.apply_coords(np.zeros([1, 2]))
    assert repr(Invert(10)) == "imgaug.Invert(top=10)"
    coords = Older().get_transform(image).apply_coords(np.zeros([1, 2]))
    assert -6 <= coords.min() <= -5


def test_the_older_calls_return_what_they_did():
    image = np.arange(12, dtype=np.uint8).reshape(3, 4)
    augmentor = imgaug.Flip(horiz=True, prob=1)
    flipped, params = augmentor.augment_return_params(image)
    np.testing.assert_array_equal(flipped, image[:, ::-1])
    np.testing.assert_array_equal(augmentor.augment_with_params(image, params), flipped)
    np.testing.assert_array_equal(augmentor.augment_coords(np.array([[1.0, 1.0]]), params), [[3.0, 1.0]])


def test_augmentors_travel_to_workers():
    augmentor = pickle.loads(pickle.dumps(imgaug.AugmentorList([imgaug.Flip(horiz=True), imgaug.Brightness(3)])))
    augmentor.reset_state()
    assert augmentor.augment(np.zeros([4, 4, 3], np.uint8)).shape == (4, 4, 3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: imgaug.Flip(True, True), ValueError, "expected one of horiz=True and vert=True"),
        (lambda: imgaug.Flip(), ValueError, "expected one of horiz=True and vert=True"),
        (lambda: imgaug.RandomResize((0.5, 2.0)), ConfigError, "pass aspect_ratio_thres=0"),
        (
            lambda: imgaug.RandomResize((0.5, 2.0), (5, 6)),
            ConfigError,
            "two ranges of integers \\(pixels\\) or of floating-point numbers",
        ),
        (lambda: imgaug.RandomResize((5, 6), (5, 6), minimum=(-1, 0)), ConfigError, "negative"),
        (lambda: imgaug.Shift(1.5), ConfigError, "expected parts of the size"),
        (lambda: imgaug.Rotation(20, step_deg=5), ConfigError, "expected max_deg=180"),
        (lambda: imgaug.Affine(scale=(0, 1)), ConfigError, "two numbers above 0"),
        (lambda: imgaug.Affine(shear=200), ConfigError, "degrees from 0 to 180"),
        (lambda: imgaug.Brightness(0), ConfigError, "expected a number above 0"),
        (lambda: imgaug.Saturation(1.5), ConfigError, "from 0 to less than 1"),
        (lambda: imgaug.Lighting(0.1, [1, 2], np.eye(3)), ConfigError, "expected \\[3\\]"),
        (lambda: imgaug.SaltPepperNoise(0.6, 0.6), ConfigError, "with a sum of at most 1"),
        (lambda: imgaug.RandomChooseAug([]), ConfigError, "empty list"),
        (lambda: imgaug.RandomChooseAug([(Invert(), 0.5)]), ConfigError, "expected a sum of 1"),
        (lambda: imgaug.RandomApplyAug(3, 0.5), ConfigError, "not an imgaug.ImageAugmentor"),
        (lambda: imgaug.AugmentorList([lambda image: image]), ConfigError, "MapImage wraps a function"),
        (lambda: imgaug.TransformFactory(image=3), ConfigError, "expected functions as apply_image="),
        (lambda: imgaug.Grayscale(keepdims=False, keepshape=True), ConfigError, "needs keepdims=True"),
        (lambda: imgaug.IAAugmentor(Invert()), ConfigError, "pip install imgaug"),
        (lambda: imgaug.Albumentations(Invert()), ConfigError, "pip install albumentations"),
    ],
)
def test_wrong_options_are_told(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("augmentor", "image", "message"),
    [
        (imgaug.RandomCrop(9), np.zeros([8, 8]), "smaller than 9 x 9"),
        (imgaug.CenterPaste(4), np.zeros([8, 8]), "larger than the canvas"),
        (imgaug.Lighting(1, [1, 1, 1], np.eye(3)), np.zeros([8, 8], np.uint8), "expected \\[height, width, 3\\]"),
        (imgaug.AugmentorList([Invert()]), [[1]], "got list instead of an image"),
        (imgaug.AugmentorList([Invert()]), np.zeros([3]), "of shape \\(3,\\)"),
        (imgaug.IAAugmentor(Foreign()), np.zeros([3, 3]), "takes uint8"),
    ],
)
def test_what_does_not_fit_is_told(augmentor, image, message):
    with pytest.raises(InputError, match=message):
        augmentor.augment(image)


def test_a_deformation_moves_a_point_as_it_was_drawn():
    rows = np.repeat(np.arange(40.0)[:, np.newaxis, np.newaxis], 20, axis=1)
    augmentor = seeded(imgaug.deform.GaussianDeform([(0.5, 0.5)], (40, 20), 0.1, randrange=3), 1)
    moved = augmentor.augment(rows)
    down = (np.random.RandomState(1).rand() - 0.5) * 6
    assert moved[20, 10, 0] == pytest.approx(20 + down)
    np.testing.assert_allclose(moved[0], 0)
    with pytest.raises(InputError, match="resize it first"):
        augmentor.augment(rows[:5])


def test_a_transform_of_one_size_refuses_others():
    resize = imgaug.Resize(3).get_transform(np.zeros([4, 5]))
    with pytest.raises(InputError, match="expected height 4 and width 5"):
        resize.apply_image(np.zeros([5, 4]))


class TestComponents:
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    flip = staticmethod(lambda: [imgaug.Flip(horiz=True, prob=1)])

    def points(self, flow):
        flow.reset_state()
        return list(flow)

    def test_an_image_is_augmented_and_the_original_kept(self):
        paint = imgaug.MapImage(lambda image: image.__setitem__(slice(None), 0) or image)
        source = [[self.image.copy(), 1]]
        for copy, left in [(True, self.image), (False, np.zeros_like(self.image))]:
            ((image, label),) = self.points(AugmentImageComponent(DataFromList(source), [paint], copy=copy))
            assert not image.any()
            assert label == 1
            np.testing.assert_array_equal(source[0][0], left)

    def test_coordinates_go_along(self):
        flow = AugmentImageCoordinates(DataFromList([[self.image, np.array([[1.0, 2.0]])]]), self.flip())
        ((image, coords),) = self.points(flow)
        np.testing.assert_array_equal(image, self.image[:, ::-1])
        assert coords.tolist() == [[3.0, 2.0]]

    def test_several_components_are_augmented_alike_also_by_their_keys(self):
        point = {"image": self.image, "mask": self.image[:, :, 0], "points": np.array([[1.0, 2.0]]), "name": "a"}
        flow = AugmentImageComponents(
            DataFromList([point]), [imgaug.RandomCrop(2)], index=("image", "mask"), coords_index=("points",)
        )
        (found,) = self.points(flow)
        np.testing.assert_array_equal(found["image"][:, :, 0], found["mask"])
        assert found["name"] == "a"
        assert point["image"] is self.image

    def test_what_fails_is_left_out_if_that_is_asked_for(self, caplog):
        caplog.set_level(logging.WARNING, "tpk_tensorpack")
        source = [[self.image]] * 3 + [[np.zeros([2, 2])]] * 101
        flow = AugmentImageComponent(DataFromList(source, shuffle=False), [imgaug.CenterCrop(3)], catch_exceptions=True)
        assert len(self.points(flow)) == 3
        counts = [record.args[1] for record in caplog.records if "datapoints so far" in record.msg]
        assert counts == [*range(1, 10), 100]
        assert "smaller than 3 x 3" in caplog.text  # the traceback
        with pytest.raises(InputError, match="smaller than 3 x 3"):
            self.points(AugmentImageComponent(DataFromList(source), [imgaug.CenterCrop(3)]))

    def test_random_numbers_begin_anew_with_the_flow(self):
        augmentor = imgaug.Brightness(10)
        before = augmentor.rng
        self.points(AugmentImageComponent(DataFromList([[self.image]]), [augmentor]))
        assert augmentor.rng is not before

    @pytest.mark.parametrize(
        ("flow", "message"),
        [
            (lambda source: AugmentImageComponent(source, [Invert()], index=1), "got int instead of an image"),
            (lambda source: AugmentImageCoordinates(source, [Invert()]), "got int instead of coordinates"),
            (
                lambda source: AugmentImageComponents(source, [Invert()], index=(0,), coords_index=(2,)),
                "got int64 of shape \\(1, 2\\) instead of coordinates",
            ),
        ],
    )
    def test_another_component_is_told(self, flow, message):
        source = DataFromList([[self.image, 1, np.zeros([1, 2], np.int64)]])
        with pytest.raises(InputError, match=message):
            self.points(flow(source))

    def test_no_augmentors_are_told(self):
        with pytest.raises(ConfigError, match="expected a list of augmentors"):
            AugmentImageComponent(DataFromList([]), imgaug.Flip(horiz=True))


def test_images_come_from_files(tmp_path):
    image = np.random.RandomState(0).randint(256, size=(6, 8, 3)).astype(np.uint8)
    for name in "ab":
        cv2.imwrite(f"{tmp_path}/{name}.png", image)
    paths = [f"{tmp_path}/{name}.png" for name in "ab"]
    flow = ImageFromFile(paths)
    flow.reset_state()
    assert len(flow) == 2
    np.testing.assert_array_equal(next(iter(flow))[0], image[:, :, ::-1])  # RGB, of OpenCV's BGR
    for options, shape in [
        ({"channel": 1}, (6, 8, 1)),
        ({"resize": (3, 4)}, (3, 4, 3)),
        ({"shuffle": True}, (6, 8, 3)),
    ]:
        flow = ImageFromFile(paths, **options)
        flow.reset_state()
        assert [found.shape for (found,) in flow] == [shape] * 2
    missing = ImageFromFile([f"{tmp_path}/c.png"])
    missing.reset_state()
    with pytest.raises(InputError, match=r"c\.png cannot be read as an image"):
        next(iter(missing))
    for files, options, message in [([], {}, "empty list"), (paths, {"channel": 2}, "expected 1 or 3")]:
        with pytest.raises(ConfigError, match=message):
            ImageFromFile(files, **options)


def test_without_opencv_an_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"pip install 'tpk-tensorpack\[images\]'"):
        imgaug.Resize(3).augment(np.zeros([4, 4]))
    # What needs none works.
    assert imgaug.CenterCrop(2).augment(np.zeros([4, 4])).shape == (2, 2)


def test_a_crop_of_random_shape_is_never_in_the_last_place_but_the_only_one():
    crop = imgaug.RandomCropRandomShape(3, 4, 3, 4)
    crop.reset_state()
    places = {(each.y0, each.x0) for each in (crop.get_transform(np.zeros([6, 3, 3], np.uint8)) for _ in range(20))}
    assert places == {(0, 0), (1, 0)}
