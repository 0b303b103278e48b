"""Pictures by `scipy.misc`, as the scripts for generators and style transfer read, resize, merge and write them."""

import os
from glob import glob

import numpy as np
import scipy.misc
import scipy.ndimage
import tensorflow as tf
from scipy.misc import imread, imresize, imsave


def merge(images, size):
    h, w = images.shape[1], images.shape[2]
    img = np.zeros((h * size[0], w * size[1], 3))
    for idx, image in enumerate(images):
        i, j = idx % size[1], idx // size[1]
        img[j * h : j * h + h, i * w : i * w + w, :] = image
    return img


def get_image(path, size, grayscale=False):
    image = scipy.misc.imread(path, flatten=True).astype(np.float) if grayscale else imread(path).astype(np.float)
    j = int(round((image.shape[0] - 8) / 2.0))
    return scipy.misc.imresize(image[j : j + 8, j : j + 8], [size, size]) / 127.5 - 1.0


rng = np.random.RandomState(4)
if not os.path.exists("pictures"):
    os.makedirs("pictures")
for number in range(4):
    imsave("pictures/{:d}.png".format(number), rng.randint(0, 256, (10, 12, 3)).astype(np.uint8))
scipy.misc.toimage(rng.randn(10, 12), cmin=-1.0, cmax=1.0).save("pictures/gray.png")

files = sorted(glob("pictures/[0-9].png"))
batch = np.array([get_image(path, 16) for path in files]).astype(np.float32)
gray = get_image("pictures/gray.png", 16, grayscale=True)
images = tf.placeholder(tf.float32, [None, 32 / 2, 32 / 2, 3])
smooth = tf.nn.avg_pool(images, [1, 2, 2, 1], [1, 1, 1, 1], "SAME")
with tf.Session() as sess:
    found = sess.run(smooth, {images: batch})
scipy.misc.imsave("merged.png", merge((found + 1.0) / 2, [2, 2]))
merged = imread("merged.png", mode="RGB")
raw = np.fromstring(merged.tostring(), dtype=np.uint8).reshape(merged.shape)
np.savez(
    "results.npz",
    found=found,
    gray=gray,
    merged=merged,
    raw=raw,
    half=imresize(merged, 0.5, interp="nearest"),
    larger=imresize(merged, 150, interp="bicubic"),
    floats=imresize(gray, (9, 20), mode="F"),
    zoomed=scipy.ndimage.zoom(gray, 0.5, order=0),
    scaled=scipy.misc.bytescale(gray),
)
