"""Keras models and layers in the towers of tpk, of every version of Keras, and their files."""

from __future__ import annotations

from tpk_keras.files import KerasRestore, KerasSaver
from tpk_keras.model import KerasModel

__all__ = ["KerasModel", "KerasRestore", "KerasSaver"]
