"""Cached MD5s of files, needed for the identity of each composed config, and by workers that load data.

MD5, as the published checksums of data sets are MD5s. It distinguishes files; it is no protection against forgery.
"""

import hashlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

KEPT = Path("~/.cache/syncline/checksums")  # one small file for each large one
LARGE_BYTES = 1 << 24  # of a file: smaller ones are read faster than looked up
LARGE_ENTRIES = 500  # of a folder
SLOW_BYTES = 1 << 30  # of a file: above, reading is announced
SETTLED_NS = 2_000_000_000  # age below which a file may change again within one tick of its clock

Stamp = tuple[int, ...]


def file_checksum(path: Path) -> str:
    """MD5 of the file's bytes in hex digits; cached for a file that has not changed since it was read.

    The cache's key is path, device, inode, size, time of modification and time of status change. The last cannot be
    set by anyone, so any change of the bytes changes the key, except within one tick of the file system's clock: files
    that changed in the last two seconds are read again.

    Raises:
        OSError: it cannot be read.
    """
    return _known(path, _read)


def folder_checksum(path: Path) -> str:
    """MD5 of the names and sizes of a folder's files, without subfolders and hidden files; none is read.

    Cached until the folder's own times change: when a file is added, removed, renamed or replaced. A file that is
    overwritten in place is not noticed.

    Raises:
        OSError: it cannot be read.
    """
    return _known(path, _list)


def checksum(content: bytes) -> str:
    """MD5 of these bytes in hex digits."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def joint_checksum(parts: Iterable[str]) -> str:
    """MD5 of several checksums or names, in this order; a single one is returned as it is."""
    parts = list(parts)
    return parts[0] if len(parts) == 1 else checksum("\n".join(parts).encode())


def _known(path: Path, measure: Callable[[str], tuple[str, bool]]) -> str:
    about = path.stat()
    stamp = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    if time.time_ns() - about.st_ctime_ns < SETTLED_NS:
        return measure(str(path))[0]
    return _settled(str(path.resolve()), stamp, measure)


@lru_cache(maxsize=8192)
def _settled(path: str, stamp: Stamp, measure: Callable[[str], tuple[str, bool]]) -> str:
    """The cached checksum, or a new one; `stamp` is part of the key."""
    key = hashlib.sha256(repr((path, stamp, measure.__name__)).encode()).hexdigest()[:32]
    kept = KEPT.expanduser() / key
    with suppress(OSError, UnicodeDecodeError):
        known = kept.read_text()
        if re.fullmatch("[0-9a-f]{32}", known):
            return known
    checksum, is_large = measure(path)
    if is_large:
        with suppress(OSError):  # a read-only home: the next process reads the file again
            _write(kept, checksum)
    return checksum


def _write(path: Path, content: str) -> None:
    """Write atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
        draft.write(content)
    Path(draft.name).replace(path)


def _read(path: str) -> tuple[str, bool]:
    """The checksum of a file, and whether to cache it."""
    with open(path, "rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes >= SLOW_BYTES:
            print(f"reading {path} ({num_bytes / 1e9:.1f} GB) once, for its checksum", file=sys.stderr)
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return digest, num_bytes >= LARGE_BYTES


def _list(path: str) -> tuple[str, bool]:
    """The checksum of a folder, and whether to cache it."""
    with os.scandir(path) as entries:
        rows = sorted(
            f"{entry.stat().st_size} {entry.name}"
            for entry in entries
            if not entry.name.startswith(".") and entry.is_file()
        )
    text = "\n".join(rows).encode("utf-8", "surrogateescape")
    return checksum(text), len(rows) >= LARGE_ENTRIES
