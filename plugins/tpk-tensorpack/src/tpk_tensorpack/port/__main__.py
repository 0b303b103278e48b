"""`python -m tpk_tensorpack.port script.py`: convert a script of tensorpack to tpk's own names."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

from tpk_tensorpack.port import ConversionError, convert


def main() -> int:
    """Convert the script that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tpk_tensorpack.port",
        description="Convert a script that was written for tensorpack and TensorFlow 1 to tpk's own names.",
        epilog="example: python -m tpk_tensorpack.port train.py -o train_tpk.py; grep -n '# tpk:' train_tpk.py",
        allow_abbrev=False,
    )
    parser.add_argument("script", type=Path, help="the script; it is not changed")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="where to write it, in place of standard output"
    )
    parser.add_argument("--diff", action="store_true", help="show what changes, in place of the whole script")
    args = parser.parse_args()
    try:
        source = args.script.read_text(encoding="utf-8")
        conversion = convert(source, str(args.script))
    except (ConversionError, ImportError, OSError, UnicodeDecodeError) as error:
        parser.error(str(error))
    if args.diff:
        lines = difflib.unified_diff(
            source.splitlines(keepends=True), conversion.code.splitlines(keepends=True), str(args.script), "converted"
        )
        sys.stdout.writelines(lines)
    elif args.output is None:
        sys.stdout.write(conversion.code)
    if args.output is not None:
        args.output.write_text(conversion.code, encoding="utf-8")
    sys.stderr.write(f"{conversion.summary(str(args.script))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
