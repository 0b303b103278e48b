"""Files and directories."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.request import urlretrieve

from tpk_tensorpack.utils import logger
from tpk_tensorpack.utils.utils import execute_only_once, get_tqdm

__all__ = ["download", "get_dataset_path", "mkdir_p", "normpath", "recursive_walk"]


def mkdir_p(dirname: str) -> None:
    """Create a directory and its parents if they do not exist."""
    if dirname:
        os.makedirs(dirname, exist_ok=True)


def download(url: str, dir: str, filename: str | None = None, expect_size: int | None = None) -> str:
    """Download a file, unless it exists with the expected size.

    Args:
        url: the URL.
        dir: the directory to write to.
        filename: the name to write to; by default the name in the URL.
        expect_size: the expected number of bytes; a mismatch logs a warning.

    Returns:
        The path of the file.

    Raises:
        OSError: the download failed; the message names the URL.
    """
    mkdir_p(dir)
    path = os.path.join(dir, filename or url.rpartition("/")[2])
    if os.path.isfile(path):
        if expect_size is not None and os.path.getsize(path) == expect_size:
            logger.info("File %s exists! Skip download.", os.path.basename(path))
            return path
        logger.warning("File %s exists. Will overwrite with a new download!", os.path.basename(path))
    try:
        with get_tqdm(unit="B", unit_scale=True, miniters=1, desc=os.path.basename(path)) as bar:
            urlretrieve(url, path, lambda blocks, size, total: bar.update(blocks * size - bar.n))
    except OSError as error:
        raise OSError(f"Failed to download {url}: {error}") from error
    size = os.path.getsize(path)
    if size == 0:
        raise OSError(f"Downloaded an empty file from {url}!")
    if expect_size is not None and size != expect_size:
        logger.error(
            "File downloaded from %s has %d bytes; %d were expected. You may have to delete it.", url, size, expect_size
        )
    else:
        logger.info("Downloaded %s, %d bytes.", os.path.basename(path), size)
    return path


def recursive_walk(rootdir: str) -> Iterator[str]:
    """Yield the path of each file below a directory."""
    for directory, _, files in os.walk(rootdir):
        for name in files:
            yield os.path.join(directory, name)


def get_dataset_path(*args: str) -> str:
    """Return a path below the directory of data sets, which the environment variable ``TENSORPACK_DATASET`` sets.

    The default is ``~/tensorpack_data``.

    Raises:
        OSError: the directory in the variable does not exist.
    """
    root = os.environ.get("TENSORPACK_DATASET")
    if root is None:
        root = os.path.expanduser(os.path.join("~", "tensorpack_data"))
        if execute_only_once():
            logger.warning("Env var $TENSORPACK_DATASET not set, using %s for datasets.", root)
        mkdir_p(root)
    elif not os.path.isdir(root):
        raise OSError(f"TENSORPACK_DATASET={root}: there is no such directory; create it, or choose another one")
    return os.path.join(root, *args)


def normpath(path: str) -> str:
    """Return a path without ``..`` and double slashes; a URL is returned unchanged."""
    return path if "://" in path else os.path.normpath(path)
