"""A terminal as far as rich uses one: its content after all that was written to it."""

import re


class Screen:
    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0

    def write(self, text: str) -> None:
        """Characters, new lines, and the codes that move up and erase a line; those that show or colour do nothing."""
        for number, code, character in re.findall(r"\x1b\[\??(\d*)[;\d]*([A-Za-z])|(.)", text, re.DOTALL):
            if code == "A":
                self._row -= int(number or 1)
                assert self._row >= 0, "above the screen"
            elif code == "K":
                self._rows[self._row] = []
            elif character == "\r":
                self._column = 0
            elif character == "\n":
                self._new_line()
            elif character:
                self._put(character)

    @property
    def lines(self) -> list[str]:
        """Without the empty ones at the end."""
        return "\n".join("".join(row).rstrip() for row in self._rows).rstrip("\n").split("\n")

    def _put(self, character: str) -> None:
        if self._column == self._width:
            self._new_line()
        row = self._rows[self._row]
        row.extend(" " * (self._column + 1 - len(row)))
        row[self._column] = character
        self._column += 1

    def _new_line(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._rows):
            self._rows.append([])
