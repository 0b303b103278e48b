"""`tf.contrib.image`: rotations, translations and other projective transforms of images."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in, own_names

v1 = tf.compat.v1


def rotate(images: Any, angles: Any, interpolation: str = "NEAREST", name: str | None = None) -> Any:
    """Rotate images around their centers.

    Args:
        images: a tensor of shape [N, height, width, channels], [height, width, channels] or [height, width].
        angles: counterclockwise angles in radians, of shape [N], or one angle for all images.
        interpolation: ``"NEAREST"`` or ``"BILINEAR"``.
        name: the name of the scope.
    """
    with v1.name_scope(name, "rotate"):
        images = tf.convert_to_tensor(images)
        height, width = tf.unstack(tf.shape(_batch(images))[1:3])
        return transform(images, angles_to_projective_transforms(angles, height, width), interpolation)


def translate(images: Any, translations: Any, interpolation: str = "NEAREST", name: str | None = None) -> Any:
    """Move images by ``[dx, dy]`` pixels, of shape [N, 2] or [2]; see `rotate` for the other arguments."""
    with v1.name_scope(name, "translate"):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def transform(
    images: Any, transforms: Any, interpolation: str = "NEAREST", output_shape: Any = None, name: str | None = None
) -> Any:
    """Apply projective transforms to images. Pixels from outside an image are 0.

    Args:
        images: see `rotate`.
        transforms: transforms of shape [N, 8], or [8] for all images. ``[a0, a1, a2, b0, b1, b2, c0, c1]`` maps the
            output point ``(x, y)`` to the input point ``((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k)``, where
            ``k = c0 x + c1 y + 1``.
        interpolation: ``"NEAREST"`` or ``"BILINEAR"``.
        output_shape: the height and width of the results; by default the size of the images.
        name: the name of the scope.
    """
    with v1.name_scope(name, "transform"):
        images = tf.convert_to_tensor(images)
        batch = _batch(images)
        if output_shape is None:
            output_shape = batch.shape[1:3] if batch.shape[1:3].is_fully_defined() else tf.shape(batch)[1:3]
        transforms = tf.reshape(tf.convert_to_tensor(transforms, tf.float32), [-1, 8])
        moved = tf.raw_ops.ImageProjectiveTransformV2(
            images=batch, transforms=transforms, output_shape=output_shape, interpolation=interpolation.upper()
        )
        return moved if images.shape.rank == 4 else moved[0] if images.shape.rank == 3 else moved[0, :, :, 0]


def _batch(images: Any) -> Any:
    """Return images as [N, height, width, channels]."""
    if images.shape.rank not in (2, 3, 4):
        raise TypeError(f"images must have 2, 3 or 4 dimensions in the graph, but their shape is {images.shape}.")
    return images if images.shape.rank == 4 else images[None] if images.shape.rank == 3 else images[None, ..., None]


def angles_to_projective_transforms(angles: Any, image_height: Any, image_width: Any, name: str | None = None) -> Any:
    """Return the transforms that rotate images of a given size around their centers, as [N, 8]; see `rotate`."""
    with v1.name_scope(name, "angles_to_projective_transforms"):
        angles = tf.reshape(tf.convert_to_tensor(angles, tf.float32), [-1])
        cos, sin, zero = tf.cos(angles), tf.sin(angles), tf.zeros_like(angles)
        height, width = (tf.cast(size, tf.float32) - 1 for size in (image_height, image_width))
        x, y = (width - (cos * width - sin * height)) / 2, (height - (sin * width + cos * height)) / 2
        return tf.stack([cos, -sin, x, sin, cos, y, zero, zero], axis=1)


def translations_to_projective_transforms(translations: Any, name: str | None = None) -> Any:
    """Return the transforms that move images by ``[dx, dy]``, as [N, 8]; see `translate`."""
    with v1.name_scope(name, "translations_to_projective_transforms"):
        x, y = tf.unstack(tf.reshape(tf.convert_to_tensor(translations, tf.float32), [-1, 2]), axis=1)
        one, zero = tf.ones_like(x), tf.zeros_like(x)
        return tf.stack([one, zero, -x, zero, one, -y, zero, zero], axis=1)


def compose_transforms(*transforms: Any) -> Any:
    """Return the composition of transforms of the same shape, as [N, 8]."""
    flat = [tf.pad(tf.reshape(each, [-1, 8]), [[0, 0], [0, 1]], constant_values=1) for each in transforms]
    product = tf.reshape(functools.reduce(tf.matmul, [tf.reshape(each, [-1, 3, 3]) for each in flat]), [-1, 9])
    return product[:, :8] / product[:, 8:]


__all__ = own_names(__name__)

__getattr__ = finder_in("tf.contrib.image", __all__)
