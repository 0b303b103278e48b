"""``tpk doctor``: versions, devices and plugins, and what is wrong with them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import attrs
import click

from tpk import __version__
from tpk.cli.framework import examples, json_option
from tpk.cli.table import print_table
from tpk.errors import PluginError
from tpk.plugin.catalog import get_catalog

_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras", "numpy", "protobuf", "horovod")


@attrs.frozen
class Finding:
    """One row of the report.

    Attributes:
        state: ``"ok"``, ``"warning"`` or ``"failed"``.
        what: what was checked.
        found: what was found.
        remedy: how to fix it; empty if all is well.
    """

    state: str = attrs.field(validator=attrs.validators.in_(("ok", "warning", "failed")))
    what: str
    found: str
    remedy: str = ""


@click.command(epilog=examples("tpk doctor", "tpk doctor --json | jq '.[] | select(.state == \"failed\")'"))
@json_option
def doctor(as_json: bool) -> int:
    """Show versions, devices and plugins, and their problems.

    It imports TensorFlow and the installed plugins in other processes, lists the devices, and says why TensorFlow sees
    no GPU, and how to fix what does not work. The exit status is 1 if something failed.
    """
    with ThreadPoolExecutor() as pool:
        # Both import TensorFlow, which takes seconds.
        tensorflow, plugins = pool.submit(check_tensorflow), pool.submit(check_plugins)
        findings = [*versions(), *tensorflow.result(), *plugins.result()]
    failed = sum(each.state == "failed" for each in findings)
    if as_json:
        print(json.dumps([attrs.asdict(each) for each in findings], indent=2))
        return int(failed > 0)
    print_table(("state", "what", "found"), [(each.state, each.what, each.found) for each in findings])
    for each in findings:
        if each.remedy:
            print(f"\n{each.state}: {each.what}: {each.remedy}")
    warnings = sum(each.state == "warning" for each in findings)
    print(f"\n{failed} failed, {warnings} warning{'' if warnings == 1 else 's'}")
    return int(failed > 0)


def versions() -> Iterator[Finding]:
    """Return the versions of Python, tpk, and the distributions that matter to it."""
    python = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    is_tested = (3, 10) <= sys.version_info[:2] <= (3, 13)
    remedy = "" if is_tested else "tpk is tested with Python 3.10 to 3.13."
    yield Finding("ok" if is_tested else "warning", "Python", python, remedy)
    yield Finding("ok", "tpk", __version__)
    for name in _DISTRIBUTIONS:
        try:
            yield Finding("ok", name, metadata.version(name))
        except metadata.PackageNotFoundError:
            pass


def check_tensorflow(timeout: float = 120.0) -> list[Finding]:
    """Import TensorFlow, list its devices, and run a graph, in another process, which may crash or hang.

    Args:
        timeout: how many seconds the process may take.
    """
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    command = [sys.executable, "-m", "tpk.cli.doctor_probe"]
    try:
        probe = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=timeout)
    except subprocess.TimeoutExpired:
        remedy = "`python -X faulthandler -c 'import tensorflow'` shows where it hangs when it receives SIGABRT."
        return [Finding("failed", "TensorFlow", f"did not respond within {timeout:g} s", remedy)]
    findings = [Finding(**json.loads(line)) for line in probe.stdout.splitlines()]
    if probe.returncode:
        errors = [line for line in probe.stderr.decode(errors="replace").splitlines() if line.strip()]
        found = f"ended the process with exit status {probe.returncode}: {errors[-1] if errors else ''}"
        remedy = "with TF_CPP_MIN_LOG_LEVEL=0, TensorFlow logs more; or reinstall it in a new environment."
        findings.append(Finding("failed", "TensorFlow", found, remedy))
    return findings


def check_plugins() -> list[Finding]:
    """Import the plugins of other distributions, in another process."""
    from tpk.cli.plugins.check import check_imports

    try:
        others = [each for each in get_catalog().entries() if not each.is_builtin]
    except PluginError as error:
        return [Finding("failed", "plugins", "cannot be listed", " ".join(str(error).split()))]
    if not others:
        return [Finding("ok", "plugins", "only the built-in ones")]
    unblocked = [each for each in others if each.status != "blocked"]
    problems = dict(zip(unblocked, check_imports(unblocked), strict=True))
    findings = []
    for each in others:
        state, found, remedy = "ok", f"{each.target}, from {each.distribution} {each.version}", ""
        if problem := problems.get(each):
            state = "failed"
            remedy = f"{problem}. Fix or uninstall it; TPK_BLOCK={each.kind}:{each.name} blocks it."
        elif each.status == "conflict":
            state = "warning"
            remedy = f'two distributions have this name: write "{each.target}" instead, or uninstall one.'
        elif each.status == "blocked":
            found += " (blocked)"
        findings.append(Finding(state, f"{each.kind} {each.name}", found, remedy))
    return findings
