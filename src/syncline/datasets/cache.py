"""Folders of what is costly to compute, made once and kept."""

import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def build_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, with what `make` writes into the empty folder given to it, unless it is there already.

    It appears whole or not at all, whatever becomes of who makes it; of several processes that ask at once one makes it
    and the others wait.

    Raises:
        OSError: it cannot be written.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f"{folder.name}.part")
    with FileLock(folder.with_name(f"{folder.name}.lock")):  # given up with the process, however that ends
        if folder.is_dir():
            return folder
        shutil.rmtree(part, ignore_errors=True)  # of one who was killed
        part.mkdir()
        try:
            make(part)
            part.rename(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return folder
