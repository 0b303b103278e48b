"""Converter of tensorpack scripts to tpk's own names.

``python -m tpk_tensorpack.port script.py`` prints the converted script, which needs no runner. Comments and layout are
preserved. Names with the same meaning in tpk become tpk's, and names of TensorFlow 1 become `tf.compat.v1`. Names
without an equivalent are imported from `tpk_tensorpack`, with a comment that says why. Code that could not be converted
is marked with a comment that begins with ``# tpk:`` and has to be checked by hand.
"""

from __future__ import annotations

from tpk_tensorpack.port.report import Conversion, ConversionError, Note

__all__ = ["Conversion", "ConversionError", "Note", "convert"]


def convert(source: str, path: str = "<script>") -> Conversion:
    """Convert the source of a script, or of one of its modules.

    Args:
        source: the source text.
        path: the name of the file in messages.

    Raises:
        ConversionError: it is not valid Python, has already been converted, or does not need a conversion.
        ImportError: libcst is not installed.

    Example:
        ```python
        print(convert(Path("train.py").read_text(), "train.py").code)
        ```
    """
    try:
        import libcst
    except ImportError as error:
        raise ImportError(
            "the converter needs libcst, which cannot be imported: pip install 'tpk-tensorpack[port]'"
        ) from error
    from tpk_tensorpack.port.converter import convert_module

    return convert_module(source, path)
