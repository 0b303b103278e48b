"""What the manual shows works as printed: every block of code is run, and what is shown of it is so."""

from __future__ import annotations

from pathlib import Path

import blocks
import psutil
import pytest
from blocks import blocks_of, changes_machine, run_page

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if blocks_of(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
@pytest.mark.timeout(300)
def test_the_blocks_of_a_page_do_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


def test_what_is_not_run_is_an_exception():
    every = [block for page in PAGES for block in blocks_of(page) if block.language in ("python", "bash")]
    left_out = [block for block in every if block.why_not_run]
    assert len(left_out) <= len(every) / 20, [str(block) for block in left_out]


@pytest.mark.parametrize(
    "command",
    [
        'pip install "tpk-train[examples]"',
        "python -m pip install x",
        "uv pip install x",
        "sudo ls",
        "apt-get install x",
    ],
)
def test_a_page_that_would_install_something_is_refused(command, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"```bash\ntrue\n{command}\n```\n", encoding="utf-8")
    assert changes_machine(command)
    with pytest.raises(AssertionError, match=r"page.md:1? ?.*would change this machine.*Mark the block as not run"):
        run_page(page, tmp_path)


def test_a_page_may_speak_of_what_it_does_not_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: installs -->\n```bash\npip install x\n```\n", encoding="utf-8")
    run_page(page, tmp_path)


def test_a_command_that_takes_too_long_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "TIMEOUT", 1)
    page = tmp_path / "page.md"
    page.write_text(f"```bash\nsleep 987 & echo $! > {tmp_path}/pid; wait\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="TimeoutExpired"):
        run_page(page, tmp_path)
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
