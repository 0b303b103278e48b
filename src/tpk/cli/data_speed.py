"""``tpk data-speed``: the speed of a dataflow and of each of its stages."""

from __future__ import annotations

import json

import click

from tpk.cli.framework import examples, json_option


@click.command(
    "data-speed",
    epilog=examples("tpk data-speed my_data:train_flow", "tpk data-speed my_data:flow --seconds 30 --json"),
)
@click.argument("flow", metavar="MODULE:FLOW")
@click.option("--size", type=int, help="The number of datapoints to measure.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="The time limit in seconds.")
@click.option("--warmup", type=int, default=10, show_default=True, help="How many datapoints to skip first.")
@json_option
def data_speed(flow: str, size: int | None, seconds: float, warmup: int, as_json: bool) -> int:
    """Measure how fast a dataflow is.

    Iterate it repeatedly, and show datapoints/s (or batches/s), MB/s, and the share of the time that each stage takes.
    MODULE:FLOW is an iterable of datapoints, or a function that returns one.
    """
    import attrs

    from tpk.cli.target import find_object
    from tpk.dataflow.base import close_dataflow
    from tpk.dataflow.inspect import measure_speed

    found = find_object(flow)
    if callable(found) and not hasattr(found, "__iter__"):
        found = found()
    try:
        report = measure_speed(found, size, seconds, warmup)
    finally:
        close_dataflow(found)
    if as_json:
        rates = {name: getattr(report, name) for name in ("datapoints_per_second", "megabytes_per_second")}
        print(json.dumps({**attrs.asdict(report), **rates}, indent=2))
    else:
        print(report)
    return 0
