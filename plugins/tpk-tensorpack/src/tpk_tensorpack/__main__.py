"""`python -m tpk_tensorpack script.py args…`: run a script that was written for tensorpack, as it is."""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int | None:
    """Run the script that the command line names."""
    parser = argparse.ArgumentParser(
        prog="python -m tpk_tensorpack",
        description="Run a script that was written for tensorpack and TensorFlow 1, as it is, on today's TensorFlow.",
        epilog="example: python -m tpk_tensorpack train.py --gpu 0",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="DIRECTORY",
        help="modules there belong to the script, too; those below its own directory do anyway",
    )
    parser.add_argument("script", help="the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="…", help="its arguments")
    args = parser.parse_args()
    for path in args.also:
        if not os.path.isdir(path):
            parser.error(f"--also {path}: there is no such directory")
    if not os.path.isfile(args.script):
        parser.error(f"there is no script {args.script!r}")

    from tpk_tensorpack.runner.script import run_script

    run_script(args.script, args.arguments, args.also)
    return None


if __name__ == "__main__":
    sys.exit(main())
