"""Plugins that other distributions bring, and whether they can be used."""

from __future__ import annotations

from collections.abc import Iterator

from tpk.cli.doctor.finding import Finding
from tpk.cli.plugins.check import check_imports
from tpk.errors import PluginError
from tpk.plugin.catalog import DISTRIBUTION, Catalog, get_catalog


def look_at_plugins(catalog: Catalog | None = None) -> Iterator[Finding]:
    """Import each plugin that does not come with tpk, in another process.

    Args:
        catalog: where they are; by default that of the process.
    """
    try:
        entries = (catalog or get_catalog()).entries()
    except PluginError as error:
        yield Finding("failed", "plugins", "cannot be listed", " ".join(str(error).split()))
        return
    others = [each for each in entries if each.distribution != DISTRIBUTION]
    if not others:
        yield Finding("ok", "plugins", "those that come with tpk")
    unblocked = [each for each in others if each.status != "blocked"]
    problems = dict(zip(unblocked, check_imports(unblocked), strict=True))
    for each in others:
        what = f"{each.kind} {each.name}"
        origin = f"{each.target}, of {each.distribution} {each.version}"
        if each in problems and problems[each] is not None:
            remedy = f"{problems[each]}. Mend or uninstall it; TPK_BLOCK={each.kind}:{each.name} blocks it."
            yield Finding("failed", what, origin, remedy)
        elif each.status == "conflict":
            remedy = f'two distributions have this name: say which by "{each.target}", or uninstall one.'
            yield Finding("warning", what, origin, remedy)
        else:
            yield Finding("ok", what, f"{origin}{' (blocked)' if each.status == 'blocked' else ''}")
