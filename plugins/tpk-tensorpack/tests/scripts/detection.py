"""The data of a detector: an image and its boxes get the same geometric transform and its inverse."""

# ruff: noqa: UP031

import cv2
import numpy as np
from tensorpack.dataflow import AugmentImageComponents, AugmentImageCoordinates, DataFromList, MapData, imgaug
from tensorpack.dataflow.imgaug.transform import CropTransform, ResizeTransform, TransformList
from tensorpack.utils.utils import fix_rng_seed
from tensorpack.utils.viz import draw_boxes

fix_rng_seed(5)
SIZE = 64


class ShortestEdge(imgaug.ImageAugmentor):
    """Resize the shortest edge to a random length, and limit the longest edge."""

    def __init__(self, lengths, max_size, interp=cv2.INTER_LINEAR):
        super().__init__()
        self._init(locals())

    def get_transform(self, img):
        h, w = img.shape[:2]
        size = self.rng.randint(self.lengths[0], self.lengths[1] + 1)
        scale = min(size / min(h, w), self.max_size / max(h, w))
        return ResizeTransform(h, w, int(h * scale + 0.5), int(w * scale + 0.5), self.interp)


def box_to_points(boxes):
    """Return the four corners of each box as points."""
    b = boxes[:, [0, 1, 2, 3, 0, 3, 2, 1]]
    return b.reshape((-1, 2))


def points_to_box(points):
    p = points.reshape((-1, 4, 2))
    return np.concatenate([p.min(axis=1), p.max(axis=1)], axis=1)


def make_images(number):
    rng = np.random.RandomState(3)
    for _ in range(number):
        image = np.zeros((SIZE, SIZE + 16, 3), dtype="uint8")
        boxes = []
        for _ in range(2):
            x, y = rng.randint(0, 40, size=2)
            w, h = rng.randint(8, 24, size=2)
            image[y : y + h, x : x + w] = rng.randint(60, 255, size=3)
            boxes.append([x, y, x + w, y + h])
        yield image, np.array(boxes, dtype="float64")


def preprocess(point):
    image, boxes = point
    aug = imgaug.AugmentorList([ShortestEdge((48, 96), 128), imgaug.Flip(horiz=True)])
    aug.reset_state()
    tfms = aug.get_transform(image)
    return [tfms.apply_image(image), points_to_box(tfms.apply_coords(box_to_points(boxes)))]


def main():
    results = {}
    images = list(make_images(4))
    ds = MapData(DataFromList(images, shuffle=False), preprocess)
    ds.reset_state()
    for n, (image, boxes) in enumerate(ds):
        h, w = image.shape[:2]
        assert boxes.min() >= -1e-3 and boxes[:, 2].max() <= w and boxes[:, 3].max() <= h
        results["detector_%d" % n], results["boxes_%d" % n] = image, boxes
        results["drawn_%d" % n] = draw_boxes(image, boxes.astype("int32"), labels=["a", "b"])

    corners = [[image, box_to_points(boxes)] for image, boxes in images]
    ds = AugmentImageCoordinates(DataFromList(corners, shuffle=False), [imgaug.Shift(0.1, 0.2), imgaug.Transpose(0.5)])
    ds.reset_state()
    for n, (image, points) in enumerate(ds):
        results["shifted_%d" % n], results["points_%d" % n] = image, points

    masks = [[image, (image.sum(axis=2) > 0).astype("uint8"), box_to_points(boxes)] for image, boxes in images]
    augmentors = [
        imgaug.RandomCropRandomShape(30, 60),
        imgaug.RandomApplyAug(imgaug.Affine(scale=(0.8, 1.2), translate_frac=(0.1, 0.1), shear=10), 0.7),
        imgaug.Resize((40, 40), interp=cv2.INTER_NEAREST),
    ]
    ds = AugmentImageComponents(DataFromList(masks, shuffle=False), augmentors, index=(0, 1), coords_index=(2,))
    ds.reset_state()
    for n, (image, mask, points) in enumerate(ds):
        assert image.shape == (40, 40, 3) and mask.shape == (40, 40)
        results["masked_%d" % n], results["mask_%d" % n], results["corners_%d" % n] = image, mask, points

    image, boxes = images[0]
    fixed = TransformList([CropTransform(4, 6, 40, 50), ResizeTransform(40, 50, 80, 100, cv2.INTER_AREA)])
    assert fixed.apply_image(image).shape == (80, 100, 3)
    np.testing.assert_allclose(fixed.apply_coords(box_to_points(boxes)), (box_to_points(boxes) - [6, 4]) * 2)
    np.savez("detection.npz", **results)


if __name__ == "__main__":
    main()
