from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# What makes pages of code, and what runs the blocks of pages: neither is a package.
sys.path[:0] = [str(ROOT / "docs" / "generate"), str(Path(__file__).parent)]
