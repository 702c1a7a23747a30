"""A cache of folders that are expensive to compute."""

import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def build_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Fill `folder` by calling `make` with an empty folder, unless it exists; returns `folder`.

    It appears atomically, also if the process is killed; of several processes at the same time one calls `make` and the
    others wait.

    Raises:
        OSError: it cannot be written.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f"{folder.name}.part")
    with FileLock(folder.with_name(f"{folder.name}.lock")):  # released when the process ends, in any way
        if folder.is_dir():
            return folder
        shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
        part.mkdir()
        try:
            make(part)
            part.rename(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return folder
