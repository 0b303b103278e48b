"""`python -m tpk_tensorpack.port script.py`: convert a tensorpack script to tpk's own names."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from tpk_tensorpack.port import ConversionError, convert
from tpk_tensorpack.port.modules import modules_of
from tpk_tensorpack.port.report import NothingToConvertError


def main() -> int:
    """Convert the script named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tpk_tensorpack.port",
        description="Convert a script written for tensorpack and TensorFlow 1 to tpk's own names.",
        epilog="example: python -m tpk_tensorpack.port train.py -o train_tpk.py; grep -n '# tpk:' train_tpk.py",
        allow_abbrev=False,
    )
    parser.add_argument("script", type=Path, help="the script; it is not changed")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="the file to write; standard output by default"
    )
    parser.add_argument("--diff", action="store_true", help="show a diff instead of the whole script")
    parser.add_argument(
        "--recursive",
        action="store_true",
        help="also convert the imported modules below the script's directory; OUT is a directory",
    )
    args = parser.parse_args()
    if args.recursive and args.output is None and not args.diff:
        parser.error("--recursive needs -o DIRECTORY, or --diff")
    try:
        if args.recursive:
            for path in modules_of(args.script):
                out = None if args.output is None else args.output / path.relative_to(args.script.parent)
                _convert(path, out, args.diff, is_module=path != args.script)
        else:
            _convert(args.script, args.output, args.diff)
    except (ConversionError, ImportError, OSError, UnicodeDecodeError) as error:
        parser.error(str(error))
    return 0


def _convert(path: Path, output: Path | None, diff: bool, is_module: bool = False) -> None:
    source = path.read_text(encoding="utf-8")
    try:
        conversion = convert(source, str(path))
        code, summary = conversion.code, conversion.summary(str(path))
    except NothingToConvertError:
        if not is_module:
            raise
        code, summary = source, f"{path}: nothing to convert"
    if diff:
        before, after = (text.splitlines(keepends=True) for text in (source, code))
        sys.stdout.writelines(difflib.unified_diff(before, after, str(path), "converted"))
    elif output is None:
        sys.stdout.write(code)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(code, encoding="utf-8")
    sys.stderr.write(f"{summary}\n")


if __name__ == "__main__":
    sys.exit(main())
