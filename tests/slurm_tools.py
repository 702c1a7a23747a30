"""Commands of Slurm's names that say what a test wants, or fail."""

import os
from pathlib import Path

import pytest


class Tools:
    """Commands of Slurm's names, the only ones that are found."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._folder = folder
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")

    def fails(self, name: str, text: str) -> None:
        self._write(name, f"cat >&2 <<'END'\n{text}END\nexit 1\n")

    def says(self, name: str, text: str) -> None:
        self._write(name, f"echo \"$@\" >> {self._folder}/{name}.asked\necho '{text}'\n")

    def numbers(self, name: str, first: int, most: int = 99) -> None:
        """It prints the next number each time, and fails after `most` calls."""
        asked = f"{self._folder}/{name}.asked"
        count = f'echo "$@" >> {asked}\ncount=$(wc -l < {asked})\n'
        self._write(name, f"{count}[ $count -le {most} ] && expr {first - 1} + $count || exit 1\n")

    def asked(self, name: str) -> list[str]:
        """The arguments of each call of a command that `says` something."""
        path = self._folder / f"{name}.asked"
        return path.read_text().splitlines() if path.exists() else []

    def _write(self, name: str, body: str) -> None:
        (self._folder / name).write_text(f"#!/bin/sh\n{body}")
        (self._folder / name).chmod(0o755)
