"""Versions of what is installed, and whether they go together; nothing is imported for that."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tpk import __version__
from tpk.cli.doctor.finding import Finding

Distributions = Mapping[str, metadata.Distribution]

OLDEST_PYTHON, NEWEST_PYTHON = Version("3.10"), Version("3.13")
TENSORFLOWS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-macos",
    "tensorflow-rocm",
    "intel-tensorflow",
    "tf-nightly",
)
_SHOWN = ("keras", "tf-keras", "numpy", "protobuf", "ml-dtypes", "horovod")


def installed_distributions(path: list[str] | None = None) -> dict[str, metadata.Distribution]:
    """Return what is installed, by canonical names.

    Args:
        path: where to look; by default ``sys.path``.
    """
    found: dict[str, metadata.Distribution] = {}
    for each in metadata.distributions() if path is None else metadata.distributions(path=path):
        # What comes first is what is imported. A directory that was removed in part has no name.
        if each.metadata["Name"]:
            found.setdefault(canonicalize_name(each.metadata["Name"]), each)
    return found


def look_at_installation(installed: Distributions, python: str = platform.python_version()) -> Iterator[Finding]:
    """Look at the versions.

    Args:
        installed: what is, by name.
        python: the version of Python.
    """
    yield _python(python)
    yield Finding("ok", "tpk", __version__)
    yield _tensorflow(installed)
    for name in _SHOWN:
        if name in installed:
            yield Finding("ok", name, installed[name].version)
    yield from _numpy(installed)
    yield from _keras(installed)
    tensorflow = [name for name in TENSORFLOWS if name in installed][:1]
    for name in ["tpk-train", *tensorflow]:
        if name in installed:
            yield from _requirements(installed[name], installed)


def _python(version: str) -> Finding:
    major_minor = Version(".".join(version.split(".")[:2]))
    found = f"{version}, {platform.system()} {platform.machine()}"
    if OLDEST_PYTHON <= major_minor <= NEWEST_PYTHON:
        return Finding("ok", "Python", found)
    return Finding("warning", "Python", found, f"tpk is tested with Python {OLDEST_PYTHON} to {NEWEST_PYTHON}.")


def _tensorflow(installed: Distributions) -> Finding:
    found = {name: installed[name].version for name in TENSORFLOWS if name in installed}
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    if not found:
        return Finding("failed", "TensorFlow", "not installed", "pip install tensorflow")
    if len(found) > 1:
        remedy = (
            f"these put their files into the same place, so that one overwrites the other: pip uninstall "
            f"{' '.join(found)}, and install the one that you want."
        )
        # Of one version, they are the same but for CUDA.
        return Finding("warning" if len(set(found.values())) == 1 else "failed", "TensorFlow", text, remedy)
    version = Version(next(iter(found.values())))
    if not Version("2.15") <= version < Version("2.22"):
        return Finding("warning", "TensorFlow", text, "tpk is tested with TensorFlow 2.15 to 2.21.")
    return Finding("ok", "TensorFlow", text)


def _version(installed: Distributions, *names: str) -> Version | None:
    return next((Version(installed[name].version) for name in names if name in installed), None)


def _numpy(installed: Distributions) -> Iterator[Finding]:
    tensorflow, numpy = _version(installed, *TENSORFLOWS), _version(installed, "numpy")
    if tensorflow and numpy and tensorflow < Version("2.18") and numpy >= Version("2"):
        found = f"NumPy {numpy} with TensorFlow {tensorflow}"
        remedy = "TensorFlow before 2.18 was built for NumPy 1, and cannot be imported with 2: pip install 'numpy<2'"
        yield Finding("failed", "NumPy 2", found, remedy)


def _keras(installed: Distributions) -> Iterator[Finding]:
    tensorflow, keras = _version(installed, *TENSORFLOWS), _version(installed, "keras")
    legacy = _version(installed, "tf-keras")
    if tensorflow is None:
        return
    if keras and keras >= Version("3"):
        if tensorflow < Version("2.16"):
            found, remedy = (
                f"Keras {keras} with TensorFlow {tensorflow}",
                "tf.keras is Keras 2 there: pip install 'keras<2.16'",
            )
            yield Finding("warning", "Keras 3", found, remedy)
        else:
            found = "without tf.compat.v1.layers and rnn_cell; tpk.layers has them, and KerasModel takes Keras 3"
            yield Finding("ok", "Keras 3", found)
    if legacy and legacy.release[:2] != tensorflow.release[:2]:
        minor = ".".join(map(str, tensorflow.release[:2]))
        found = f"tf-keras {legacy} with TensorFlow {tensorflow}"
        yield Finding(
            "warning", "Keras 2", found, f"they belong together in one version: pip install 'tf-keras=={minor}.*'"
        )
    if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") and not legacy and tensorflow >= Version("2.16"):
        found = "TF_USE_LEGACY_KERAS is set, but tf-keras is not installed"
        yield Finding(
            "failed", "Keras 2", found, "tf.keras cannot be used: pip install tf-keras, or unset the variable."
        )


def _requirements(distribution: metadata.Distribution, installed: Distributions) -> Iterator[Finding]:
    """Look at what a distribution asks for."""
    who = f"{distribution.metadata['Name']} {distribution.version}"
    for requirement in _applying(distribution.requires or ()):
        name = canonicalize_name(requirement.name)
        wanted = f"pip install '{requirement.name}{requirement.specifier}'"
        if name in TENSORFLOWS and any(each in installed for each in TENSORFLOWS):
            continue
        if name not in installed:
            yield Finding("failed", requirement.name, "not installed", f"{who} needs it: {wanted}")
        elif not requirement.specifier.contains(installed[name].version, prereleases=True):
            found = f"{installed[name].version}, where {who} asks for {requirement.specifier}"
            yield Finding("warning", requirement.name, found, f"it may work all the same; else {wanted}")


def _applying(requires: Iterable[str]) -> Iterator[Requirement]:
    for text in requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement
