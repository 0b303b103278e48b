"""What the manual shows works as printed: every block of code is run, and what is shown of it is so."""

from __future__ import annotations

from pathlib import Path

import pytest
from blocks import blocks_of, run_page

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
