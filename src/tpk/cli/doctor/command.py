"""``tpk doctor``: its arguments, and the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tpk.cli.framework import examples, json_option

if TYPE_CHECKING:
    from tpk.cli.doctor.finding import Finding


@click.command(epilog=examples("tpk doctor", "tpk doctor --json | jq '.[] | select(.state == \"failed\")'"))
@json_option
def doctor(as_json: bool) -> int:
    """Look for what does not work here, and say what to do about it.

    Versions, and whether they go together; TensorFlow, its devices, and why it uses no GPU; Horovod, and what it was
    built with; plugins; limits of the system. TensorFlow is imported in another process, which takes some seconds. The
    exit status is 1 if something failed.
    """
    from tpk.cli.doctor.installation import installed_distributions, look_at_installation
    from tpk.cli.doctor.plugins import look_at_plugins
    from tpk.cli.doctor.system import look_at_system
    from tpk.cli.doctor.tensorflow import look_at_tensorflow

    findings = [
        *look_at_installation(installed_distributions()),
        *look_at_tensorflow(),
        *look_at_plugins(),
        *look_at_system(),
    ]
    return report(findings, as_json=as_json)


def report(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Write findings to stdout.

    Returns:
        The exit status: 1 if something failed.
    """
    failed = [each for each in findings if each.state == "failed"]
    if as_json:
        print(json.dumps([each.as_data() for each in findings], indent=2))
        return int(bool(failed))
    from tpk.cli.table import print_table

    print_table(("state", "what", "found"), [(each.state, each.what, each.found) for each in findings])
    for each in findings:
        if each.remedy:
            print(f"\n{each.state}: {each.what}: {each.remedy}")
    warnings = sum(each.state == "warning" for each in findings)
    print(f"\n{len(failed)} failed, {warnings} warning{'' if warnings == 1 else 's'}")
    return int(bool(failed))
