"""The figures as a picture: a bar per system in each row, as long as its share of the row's best (SVG, by hand)."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

from benchmarks.bench import LEAGUES
from benchmarks.figures import Cell, Figures
from benchmarks.systems import OURS, RAW
from benchmarks.table import number

_WIDTH: Final = 760
_LEFT: Final = 130
_BARS: Final = 440
_LINE: Final = 17
_COLOURS: Final = {OURS: "#1f6f8b", RAW: "#9aa5b1"}
_PEER: Final = "#d9a066"
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.row{font-weight:bold}.league{font-size:15px;font-weight:bold}"
    "rect.ground{fill:#fff}"
)


def svg(figures: Figures) -> str:
    """Return the picture; rows and systems without a figure aren't in it."""
    lines: list[str] = []
    top = 10
    titles = {league.name: league.title for league in LEAGUES}
    for league in figures.leagues():
        top += 24
        lines.append(_text(10, top, titles.get(league, league), "league"))
        for row in figures.rows(league):
            cells = [
                cell for cell in (figures.cell(league, row, name) for name in figures.systems(league, row)) if cell
            ]
            cells = [cell for cell in cells if cell.median is not None]
            if not cells:
                continue
            top += 24
            lines.append(_text(10, top, f"{row}{_what(cells[0])}", "row"))
            longest = max(cell.median or 0.0 for cell in cells)
            for cell in cells:
                top += _LINE
                lines += _bar(cell, top, longest)
        top += 12
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top + 16}" viewBox="0 0 {_WIDTH} {top + 16}">'
    ground = f'<rect class="ground" width="{_WIDTH}" height="{top + 16}"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", ground, *lines, "</svg>\n"])


def _what(cell: Cell) -> str:
    return (
        ", jobs per second"
        if cell.unit == "/s"
        else f", {cell.unit} (less is better)"
        if cell.unit
        else " (less is better)"
    )


def _bar(cell: Cell, top: int, longest: float) -> list[str]:
    value = cell.median or 0.0
    width = max(1.0, _BARS * value / longest) if longest > 0 else 1.0
    colour = _COLOURS.get(cell.system, _PEER)
    return [
        _text(20, top, cell.system),
        f'<rect x="{_LEFT}" y="{top - 11}" width="{width:.1f}" height="13" fill="{colour}"/>',
        _text(_LEFT + width + 6, top, number(value)),
    ]


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{mark}>{escape(words)}</text>'
