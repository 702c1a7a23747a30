"""Plain columns and numbers for a terminal or a pipe."""

import json
import math
import shutil
import textwrap
import zlib
from collections.abc import Sequence

UNBROKEN = 10_000
SHOWN = 40  # entries of a list that are shown in full: seconds a gradient of the largest of the papers' clusters


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = (), width: int | None = None) -> str:
    """Rows of cells as lines, two spaces between columns; those numbered in `right` are flush right."""
    return "\n".join(row_lines(rows, right, width))


def row_lines(rows: Sequence[Sequence[str]], right: Sequence[int] = (), width: int | None = None) -> list[str]:
    """The text of each row, as `columns` joins them; nothing is truncated.

    Args:
        width: of the terminal. A first cell that leaves no room for the others has its own line; rows that do not fit
            even then continue on further lines.
    """
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    behind = sum(widths[1:]) + 2 * len(widths[1:])
    if width is not None and widths[0] + behind > width:
        widths[0] = max((len(row[0]) for row in rows if len(row[0]) + behind <= width), default=0)
    lines = []
    for first, *others in rows:
        above = [] if len(first) <= widths[0] else wrapped(first, width or len(first))
        cells = [
            text.rjust(size) if number in right else text.ljust(size)
            for number, (text, size) in enumerate(zip(["" if above else first, *others], widths, strict=True))
        ]
        lines.append("\n".join([*above, *(line.rstrip() for line in packed(cells, "  ", width))]))
    return lines


def packed(parts: Sequence[str], between: str, width: int | None) -> list[str]:
    """Lines of whole parts, as many as fit; lines after the first are indented."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]}{between}{part}"
        if width is None or len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(f"  {part}")
    return lines


def wrapped(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """Lines of at most this width, broken between words; within one only if it is longer than a line.

    Args:
        first: the beginning of the first line, in place of the indent.
    """
    begin = indent if first is None else first
    if text and len(begin) + len(text) <= width:  # most texts fit, and textwrap is slow
        return [begin + text]
    return textwrap.wrap(text, width, initial_indent=begin, subsequent_indent=indent, break_on_hyphens=False)


def terminal_width() -> int:
    """Of standard output; without a terminal, lines are unbroken unless COLUMNS is set."""
    return shutil.get_terminal_size(fallback=(UNBROKEN, 24)).columns


def counted(number: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Formatted as 0:07, 12:30 or 3:04:59; "?" for nan."""
    if math.isnan(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(num_bytes: int) -> str:
    """Formatted as 812 B or 3.1 MB."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def cell(value: object) -> str:
    """A value of a config or a summary: numbers with six digits, "-" for None, a long list by its ends and checksum.

    Lists that differ anywhere look different.
    """
    if value is None:
        return "-"
    if isinstance(value, list) and len(value) > SHOWN:
        checksum = zlib.crc32(json.dumps(value).encode())
        return f"[{cell(value[0])}, {cell(value[1])}, ..., {cell(value[-1])}] ({len(value)} values, CRC {checksum:08x})"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
