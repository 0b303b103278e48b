"""`tf.image`, including names and arguments of TensorFlow before 1.0."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tpk_tensorflow1.missing import finder_in

per_image_whitening = tf.image.per_image_standardization


def resize_images(images: Any, size: Any, *args: Any, **kwargs: Any) -> Any:
    """Resize images; the size may also be two arguments, the height and the width."""
    if isinstance(size, int):
        size, args = [size, args[0]], args[1:]
    return tf.compat.v1.image.resize_images(images, size, *args, **kwargs)


__getattr__ = finder_in("tf.image", ["per_image_whitening"], tf.compat.v1.image, tf.image)
