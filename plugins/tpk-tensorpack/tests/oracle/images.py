"""All augmentors with the same random numbers: images, coordinates and representations.

A tensorpack script: `python images.py OUT.npz` with tensorpack, `python -m tpk_tensorpack images.py OUT.npz` with what
this package.
"""

import sys

import cv2
import numpy as np
from tensorpack.dataflow import ImageFromFile, imgaug

# tensorpack passes numbers that current OpenCV rejects.
rotation_matrix = cv2.getRotationMatrix2D
cv2.getRotationMatrix2D = lambda center, angle, scale: rotation_matrix(
    tuple(map(float, center)), float(angle), float(scale)
)

flip = imgaug.Flip(horiz=True)
AUGMENTORS = {
    "Flip": lambda: flip,
    "Flip down": lambda: imgaug.Flip(vert=True, prob=0.7),
    "Transpose": imgaug.Transpose,
    "Resize": lambda: imgaug.Resize((21, 17)),
    "Resize nearest": lambda: imgaug.Resize(20, interp=cv2.INTER_NEAREST),
    "ResizeShortestEdge": lambda: imgaug.ResizeShortestEdge(20),
    "RandomResize": lambda: imgaug.RandomResize((0.7, 1.5), (0.7, 1.5)),
    "RandomResize pixels": lambda: imgaug.RandomResize((20, 40), (20, 40), aspect_ratio_thres=0.3),
    "RandomResize least": lambda: imgaug.RandomResize((0.1, 0.5), (0.1, 0.5), minimum=(25, 20), aspect_ratio_thres=2.0),
    "RandomResize alike": lambda: imgaug.RandomResize((0.5, 1.5), aspect_ratio_thres=0),
    "RandomResize alike pixels": lambda: imgaug.RandomResize((20, 40), aspect_ratio_thres=0),
    "RandomCrop": lambda: imgaug.RandomCrop((11, 13)),
    "CenterCrop": lambda: imgaug.CenterCrop((11, 13)),
    "RandomCropRandomShape": lambda: imgaug.RandomCropRandomShape(5, 6, 20, 19),
    "RandomCropRandomShape least": lambda: imgaug.RandomCropRandomShape(5, 6),
    "GoogleNetRandomCropAndResize": lambda: imgaug.GoogleNetRandomCropAndResize(target_shape=16),
    "GoogleNetRandomCropAndResize large": lambda: imgaug.GoogleNetRandomCropAndResize((3.0, 4.0), target_shape=16),
    "RandomCutout": lambda: imgaug.RandomCutout(5, 7, fill=9),
    "Shift": lambda: imgaug.Shift(0.3, 0.2),
    "Shift one": lambda: imgaug.Shift(vert_frac=0.2, border=cv2.BORDER_CONSTANT, border_value=7),
    "Rotation": lambda: imgaug.Rotation(20, (0.3, 0.7)),
    "Rotation steps": lambda: imgaug.Rotation(180, step_deg=45, border=cv2.BORDER_CONSTANT, border_value=3),
    "RotationAndCropValid": lambda: imgaug.RotationAndCropValid(60),
    "RotationAndCropValid steps": lambda: imgaug.RotationAndCropValid(180, step_deg=90),
    "Affine": lambda: imgaug.Affine((0.8, 1.2), (0.1, 0.2), rotate_max_deg=10.0, shear=5.0),
    "Affine nothing": imgaug.Affine,
    "Affine shear": lambda: imgaug.Affine(shear=30.0),
    "Hue": imgaug.Hue,
    "Hue BGR": lambda: imgaug.Hue((-30, 30), rgb=False),
    "Brightness": lambda: imgaug.Brightness(60),
    "Brightness as it is": lambda: imgaug.Brightness(60, clip=False),
    "BrightnessScale": lambda: imgaug.BrightnessScale((0.5, 1.8)),
    "Contrast": lambda: imgaug.Contrast((0.5, 1.8)),
    "Contrast gray": lambda: imgaug.Contrast((0.5, 1.8), rgb=False, clip=False),
    "MeanVarianceNormalize": imgaug.MeanVarianceNormalize,
    "MeanVarianceNormalize each": lambda: imgaug.MeanVarianceNormalize(all_channel=False),
    "MinMaxNormalize": imgaug.MinMaxNormalize,
    "MinMaxNormalize each": lambda: imgaug.MinMaxNormalize(-1, 1, all_channel=False),
    "GaussianBlur": imgaug.GaussianBlur,
    "GaussianBlur uneven": lambda: imgaug.GaussianBlur((1, 4), (0.5, 1.5), symmetric=False),
    "Gamma": imgaug.Gamma,
    "Clip": lambda: imgaug.Clip(50, 150),
    "Saturation": imgaug.Saturation,
    "Lighting": lambda: imgaug.Lighting(0.3, [55.0, 4.0, 1.0], np.arange(9).reshape(3, 3) / 9.0),
    "JpegNoise": imgaug.JpegNoise,
    "GaussianNoise": lambda: imgaug.GaussianNoise(20),
    "SaltPepperNoise": lambda: imgaug.SaltPepperNoise(0.2, 0.1),
    "CenterPaste": lambda: imgaug.CenterPaste((41, 43), imgaug.ConstantBackgroundFiller(8)),
    "RandomPaste": lambda: imgaug.RandomPaste((41, 43)),
    "ColorSpace": lambda: imgaug.ColorSpace(cv2.COLOR_BGR2HSV),
    "Grayscale": imgaug.Grayscale,
    "Grayscale flat": lambda: imgaug.Grayscale(keepdims=False, rgb=True),
    "Grayscale three": lambda: imgaug.Grayscale(keepshape=True),
    "ToUint8": imgaug.ToUint8,
    "ToFloat32": imgaug.ToFloat32,
    "Identity": imgaug.Identity,
    "MapImage": lambda: imgaug.MapImage(lambda image: image[:5], lambda coords: coords / 2),
    "RandomApplyAug": lambda: imgaug.RandomApplyAug(imgaug.RandomCrop(9), 0.5),
    "RandomChooseAug": lambda: imgaug.RandomChooseAug([imgaug.RandomCrop(9), imgaug.Resize(8), flip]),
    "RandomChooseAug unlike": lambda: imgaug.RandomChooseAug([(imgaug.RandomCrop(9), 0.2), (flip, 0.8)]),
    "RandomOrderAug": lambda: imgaug.RandomOrderAug([imgaug.Brightness(50), imgaug.Contrast((0.5, 1.5)), flip]),
    "AugmentorList": lambda: imgaug.AugmentorList(
        [imgaug.ResizeShortestEdge(24), imgaug.RandomCrop(20), flip, imgaug.Brightness(30), imgaug.Shift(0.2)]
    ),
}
# tensorpack's JpegNoise turns gray images into color images.
COLORED = ("Hue", "JpegNoise", "Lighting", "Saturation", "ColorSpace", "Grayscale", "Contrast gray")
# tensorpack does not transform these coordinates.
WITHOUT_COORDS = ("CenterPaste", "RandomPaste")

rng = np.random.RandomState(0)
color = rng.randint(256, size=(32, 27, 3)).astype("uint8")
color[8:20, 5:15] = (200, 120, 60)
IMAGES = {
    "uint8": color,
    "float32": color.astype("float32"),
    "gray": color[:, :, 0].copy(),
    "one channel": color[:, :, :1].copy(),
}


def with_random_numbers(augmentor, seed):
    """Seed an augmentor and its nested augmentors."""
    augmentor.rng = np.random.RandomState(seed)
    for within in [getattr(augmentor, "aug", None), *(getattr(augmentor, "aug_lists", None) or ())]:
        if within is not None:
            with_random_numbers(within, seed + 1)
    for number, within in enumerate(getattr(augmentor, "augmentors", ())):
        with_random_numbers(within, seed + number)
    return augmentor


results = {}
for name, make in AUGMENTORS.items():
    for kind, image in IMAGES.items():
        if image.shape[2:] != (3,) and name.startswith(COLORED):
            continue
        for seed in range(3):
            augmentor = with_random_numbers(make(), seed)
            transform = augmentor.get_transform(image.copy())
            picture = transform.apply_image(image.copy())
            key = f"{name}, {kind}, {seed}"
            results[key] = picture
            results[f"{key}: type"] = str(picture.dtype)
            results[f"{key}: again"] = transform.apply_image(image.copy())
            if not name.startswith(WITHOUT_COORDS):
                coords = np.array([[0.0, 0.0], [3.5, 20.25], [27.0, 32.0]], "float32")
                results[f"{key}: coords"] = transform.apply_coords(coords)
            if kind == "uint8" and seed == 0 and "Filler" not in repr(augmentor) and "function" not in repr(augmentor):
                results[f"{name}: repr"] = repr(augmentor)
                results[f"{name}: transform"] = (
                    repr(transform).replace(" ", "").replace("\n", "").replace("-0.,", "0.,")
                )

cv2.imwrite("color.png", color)
cv2.imwrite("gray.png", color[:, :, 0])
for name, options in {"": {}, " gray": {"channel": 1}, " resized": {"resize": (10, 12)}}.items():
    flow = ImageFromFile(["color.png", "gray.png"], **options)
    flow.reset_state()
    for number, (image,) in enumerate(flow):
        results[f"ImageFromFile{name} {number}"] = image
np.savez(sys.argv[1], **results)
