"""tensorpack's `imgaug`: augmentors of images, and of coordinates in them.

An augmentor creates a random transform for an image. The transform itself is deterministic, and applies to that image,
to other images of the same size, and to coordinates.

Example:
    ```python
    from tpk_tensorpack.dataflow import imgaug

    augmentor = imgaug.AugmentorList([imgaug.RandomCrop(224), imgaug.Flip(horiz=True)])
    transform = augmentor.get_transform(image)
    image, mask = transform.apply_image(image), transform.apply_image(mask)
    points = transform.apply_coords(points)  # of shape [n, 2]: x and y
    ```

Images are arrays of shape ``[height, width]`` or ``[height, width, channels]``, of type ``uint8`` or floating point
with values from 0 to 255, as in OpenCV. OpenCV is imported when one of its functions is first needed.
"""

from __future__ import annotations

from tpk_tensorpack.dataflow.imgaug import deform as deform
from tpk_tensorpack.dataflow.imgaug.base import *
from tpk_tensorpack.dataflow.imgaug.convert import *
from tpk_tensorpack.dataflow.imgaug.crop import *
from tpk_tensorpack.dataflow.imgaug.external import *
from tpk_tensorpack.dataflow.imgaug.geometry import *
from tpk_tensorpack.dataflow.imgaug.imgproc import *
from tpk_tensorpack.dataflow.imgaug.meta import *
from tpk_tensorpack.dataflow.imgaug.misc import *
from tpk_tensorpack.dataflow.imgaug.noise import *
from tpk_tensorpack.dataflow.imgaug.paste import *
from tpk_tensorpack.dataflow.imgaug.transform import *

# The classes and functions, without the modules that define them.
__all__ = [name for name, value in sorted(vars().items()) if callable(value)]
