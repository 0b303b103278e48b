"""Converter: from a script of tensorpack to one on tpk's own names.

``python -m tpk_tensorpack.port script.py`` prints it. Comments and layout stay. What tpk has under the same meaning
becomes tpk's, names of TensorFlow 1 become those of `tf.compat.v1`, and what tpk does not have stays an import of
`tpk_tensorpack`, with a comment that says why: that needs no runner. What could not be converted is marked by a comment
that begins with ``# tpk:``; somebody has to look there.
"""

from __future__ import annotations

from tpk_tensorpack.port.report import Conversion, ConversionError, Note

__all__ = ["Conversion", "ConversionError", "Note", "convert"]


def convert(source: str, path: str = "<script>") -> Conversion:
    """Convert the source of a script, or of a module that belongs to one.

    Args:
        source: the text.
        path: what messages call it.

    Raises:
        ConversionError: it does not parse, is converted already, or has nothing to convert.
        ImportError: libcst is not installed.

    Example:
        ```python
        print(convert(Path("train.py").read_text(), "train.py").code)
        ```
    """
    try:
        import libcst  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the converter needs libcst, which cannot be imported: pip install 'tpk-tensorpack[port]'"
        ) from error
    from tpk_tensorpack.port.converter import convert_module

    return convert_module(source, path)
