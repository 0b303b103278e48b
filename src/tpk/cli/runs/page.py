"""The page that ``tpk plot`` writes: curves as SVG in one HTML file, which needs nothing else, and no network."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tpk.cli.runs.curves import Curve

_WIDTH, _HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 28, 36
_POINTS_WITH_VALUES = 200
_LARGEST = 8e307
"""Larger values are drawn at this one, so that the difference of two values is a finite float."""

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 14px sans-serif; margin: 1em; color: #222; background: #fff; }}
label {{ display: inline-block; margin: 0 1.2em .6em 0; }}
svg {{ max-width: 100%; margin: 0 .5em .5em 0; }}
text {{ font: 11px sans-serif; fill: #444; }}
text.title {{ font-weight: bold; font-size: 13px; fill: #222; }}
polyline {{ fill: none; stroke-width: 1.6; stroke-linejoin: round; }}
polyline.raw {{ opacity: .3; stroke-width: 1; }}
circle {{ stroke: none; }}
line {{ stroke: #ddd; }}
</style>
<form>{legend}</form>
{plots}
<script>
for (const box of document.querySelectorAll("input"))
  box.addEventListener("change", () => {{
    for (const curve of document.querySelectorAll("g[data-run]"))
      if (curve.dataset.run === box.value) curve.style.display = box.checked ? "" : "none";
  }});
</script>
</html>
"""


def page_of(plots: Mapping[str, Sequence[Curve]], label: str) -> str:
    """Return a page with a plot for each statistic, and boxes to hide runs; a point shows its value to the mouse.

    Args:
        plots: the curves of each statistic.
        label: what stands below the axes.
    """
    colors = {curve.run: curve.color for curves in plots.values() for curve in curves}
    legend = "".join(
        f'<label style="color:{color}"><input type="checkbox" checked value="{html.escape(run)}"> '
        f"{html.escape(run)}</label>"
        for run, color in colors.items()
    )
    return _PAGE.format(
        title=html.escape(f"{', '.join(plots)} - tpk plot"),
        legend=legend,
        plots="\n".join(_svg(name, curves, label) for name, curves in plots.items()),
    )


def _svg(name: str, curves: Sequence[Curve], label: str) -> str:
    finite = [curve.values[np.isfinite(curve.values)] for curve in curves]
    x = _Axis.around(np.concatenate([curve.x for curve in curves]), _LEFT, _WIDTH - _RIGHT)
    y = _Axis.around(np.concatenate(finite), _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">',
        f'<text class="title" x="{_LEFT}" y="16">{html.escape(name)}</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">{html.escape(label)}</text>',
    ]
    for tick in y.ticks:
        at = y.place(tick)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:.6g}</text>')
    for tick in x.ticks:
        at = x.place(tick)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 15}" text-anchor="middle">{tick:.12g}</text>')
    parts += [_group(curve, x, y) for curve in curves]
    return "\n".join([*parts, "</svg>"])


def _group(curve: Curve, x: _Axis, y: _Axis) -> str:
    lines = _lines(curve, curve.smooth, x, y, "")
    if curve.smooth is not curve.values:
        lines = _lines(curve, curve.values, x, y, ' class="raw"') + lines
    # Of very many, the lines show enough.
    if len(curve.x) <= _POINTS_WITH_VALUES:
        lines += [
            f'<circle cx="{x.place(step):.1f}" cy="{y.place(value):.1f}" r="2.5" fill="{curve.color}">'
            f"<title>{html.escape(curve.run)}: {value:.6g} at {step}</title></circle>"
            for step, value in zip(curve.x.tolist(), curve.smooth.tolist(), strict=True)
            if math.isfinite(value)
        ]
    return f'<g data-run="{html.escape(curve.run)}">{"".join(lines)}</g>'


def _lines(curve: Curve, values: np.ndarray, x: _Axis, y: _Axis, attributes: str) -> list[str]:
    """Return the line through `values`; where one is no number, it is interrupted."""
    gaps = np.flatnonzero(~np.isfinite(values))
    pieces = zip(np.split(curve.x, gaps), np.split(values, gaps), strict=True)
    lines = []
    for steps, heights in pieces:
        points = " ".join(
            f"{x.place(step):.1f},{y.place(height):.1f}"
            for step, height in zip(steps.tolist(), heights.tolist(), strict=True)
            if math.isfinite(height)
        )
        if points:
            lines.append(f'<polyline{attributes} stroke="{curve.color}" points="{points}"/>')
    return lines


class _Axis:
    """An axis from `low` to `high`, drawn from one place to another."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.ticks = ticks(low, high)
        self._low, self._scale, self._begin = low, (end - begin) / (high - low), begin

    @classmethod
    def around(cls, values: np.ndarray, begin: float, end: float) -> _Axis:
        """Return one with room for all `values`."""
        values = np.clip(values, -_LARGEST, _LARGEST)
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        margin = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
        return cls(low - margin, high + margin, begin, end)

    def place(self, value: float) -> float:
        return self._begin + (min(max(value, -_LARGEST), _LARGEST) - self._low) * self._scale


def ticks(low: float, high: float) -> list[float]:
    """Return three to seven round numbers between two: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.99)
    digits = max(0, -math.floor(math.log10(step)))
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(number * step, digits + 1) for number in range(first, last + 1)]
