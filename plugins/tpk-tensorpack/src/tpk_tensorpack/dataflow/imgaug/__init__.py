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
from tpk_tensorpack.dataflow.imgaug.base import (
    Augmentor,
    AugmentorList,
    ImageAugmentor,
    PhotometricAugmentor,
)
from tpk_tensorpack.dataflow.imgaug.convert import ColorSpace, Grayscale, ToFloat32, ToUint8
from tpk_tensorpack.dataflow.imgaug.crop import (
    CenterCrop,
    GoogleNetRandomCropAndResize,
    RandomCrop,
    RandomCropRandomShape,
    RandomCutout,
)
from tpk_tensorpack.dataflow.imgaug.external import Albumentations, IAAugmentor
from tpk_tensorpack.dataflow.imgaug.geometry import Affine, Rotation, RotationAndCropValid, Shift
from tpk_tensorpack.dataflow.imgaug.imgproc import (
    Brightness,
    BrightnessScale,
    Clip,
    Contrast,
    Gamma,
    GaussianBlur,
    Hue,
    Lighting,
    MeanVarianceNormalize,
    MinMaxNormalize,
    Saturation,
)
from tpk_tensorpack.dataflow.imgaug.meta import Identity, MapImage, RandomApplyAug, RandomChooseAug, RandomOrderAug
from tpk_tensorpack.dataflow.imgaug.misc import Flip, RandomResize, Resize, ResizeShortestEdge, Transpose
from tpk_tensorpack.dataflow.imgaug.noise import GaussianNoise, JpegNoise, SaltPepperNoise
from tpk_tensorpack.dataflow.imgaug.paste import BackgroundFiller, CenterPaste, ConstantBackgroundFiller, RandomPaste
from tpk_tensorpack.dataflow.imgaug.transform import (
    CropTransform,
    FlipTransform,
    ResizeTransform,
    Transform,
    TransformFactory,
    TransformList,
)

__all__ = [
    "Affine",
    "Albumentations",
    "Augmentor",
    "AugmentorList",
    "BackgroundFiller",
    "Brightness",
    "BrightnessScale",
    "CenterCrop",
    "CenterPaste",
    "Clip",
    "ColorSpace",
    "ConstantBackgroundFiller",
    "Contrast",
    "CropTransform",
    "Flip",
    "FlipTransform",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "GoogleNetRandomCropAndResize",
    "Grayscale",
    "Hue",
    "IAAugmentor",
    "Identity",
    "ImageAugmentor",
    "JpegNoise",
    "Lighting",
    "MapImage",
    "MeanVarianceNormalize",
    "MinMaxNormalize",
    "PhotometricAugmentor",
    "RandomApplyAug",
    "RandomChooseAug",
    "RandomCrop",
    "RandomCropRandomShape",
    "RandomCutout",
    "RandomOrderAug",
    "RandomPaste",
    "RandomResize",
    "Resize",
    "ResizeShortestEdge",
    "ResizeTransform",
    "Rotation",
    "RotationAndCropValid",
    "SaltPepperNoise",
    "Saturation",
    "Shift",
    "ToFloat32",
    "ToUint8",
    "Transform",
    "TransformFactory",
    "TransformList",
    "Transpose",
]
