"""``tpk data-speed``: how fast a dataflow is, and which of its stages takes the time."""

from __future__ import annotations

import argparse
import json
from typing import Any

import attrs

from tpk.cli.target import find_object


def add_data_speed_command(commands: Any) -> None:
    """Add ``tpk data-speed`` to the subcommands of a parser."""
    parser = commands.add_parser(
        "data-speed",
        help="measure how fast a dataflow is",
        description=(
            "Iterate a dataflow, over and over again, and show datapoints/s, MB/s and the share of time that each of "
            "its stages takes."
        ),
    )
    parser.set_defaults(run=_data_speed)
    parser.add_argument("flow", metavar="MODULE:FLOW", help="an iterable of datapoints, or a function that returns one")
    parser.add_argument("--size", type=int, help="stop after so many datapoints")
    parser.add_argument("--seconds", type=float, default=10.0, help="stop after so many seconds (default: %(default)g)")
    parser.add_argument(
        "--warmup", type=int, default=10, help="datapoints before the clock starts (default: %(default)d)"
    )
    parser.add_argument("--json", action="store_true", help="write JSON")


def _data_speed(arguments: argparse.Namespace) -> int:
    flow = find_object(arguments.flow)
    if callable(flow) and not hasattr(flow, "__iter__"):
        flow = flow()
    from tpk.dataflow.base import close_dataflow
    from tpk.dataflow.speed import measure_speed

    try:
        report = measure_speed(flow, arguments.size, arguments.seconds, arguments.warmup)
    finally:
        close_dataflow(flow)
    if arguments.json:
        rates = {name: getattr(report, name) for name in ("datapoints_per_second", "megabytes_per_second")}
        print(json.dumps({**attrs.asdict(report), **rates}, indent=2))
    else:
        print(report)
    return 0
