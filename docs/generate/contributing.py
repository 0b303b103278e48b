"""The page about contributing, which is CONTRIBUTING.md next to the README."""

from pathlib import Path

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def page():
    """Return the text, with links as from a page in a folder of the manual."""
    return CONTRIBUTING.read_text(encoding="utf-8").replace("](docs/", "](../")
