"""Folders of a user's own parts, for tests: those that docs/extending.md shows, and others."""

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from syncline.config.folders import VARIABLE
from syncline.config.folders import folders as config_folders

TEXT = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()
SHOWN = dict(re.findall(r"^\*\*`my/([\w./]+)`\*\*\n\n```\w+\n(.*?)```", TEXT, re.DOTALL | re.MULTILINE))


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write the files, by their path within the folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@contextmanager
def using(*folders: Path) -> Iterator[None]:
    """These alone are the user's folders; modules of others before are imported anew, and so are theirs afterwards."""
    before = {str(folder) for folder in config_folders()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, ":".join(map(str, folders)))
        patch.setattr(sys, "path", [each for each in sys.path if each not in before])
        patch.setattr(sys, "dont_write_bytecode", True)  # a file may change within a second
        _forget(before)
        try:
            yield
        finally:
            _forget(map(str, folders))


def _forget(folders: Iterable[str]) -> None:
    """Forget the modules that were imported from these folders."""
    for folder in folders:
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
                del sys.modules[name]
    importlib.invalidate_caches()
