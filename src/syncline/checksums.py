"""MD5 of files, read once: an identity asks for them at each composition, and a worker when it loads its data.

MD5, since the checksums that data sets are published with are MD5s. It tells files apart; it proves nothing.
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

KEPT = Path("~/.cache/syncline/checksums")  # a small file for each large one that was read
LARGE_BYTES = 1 << 24  # of a file: less is read faster than looked up
LARGE_ENTRIES = 500  # of a folder
SLOW_BYTES = 1 << 30  # of a file: seconds, which are announced
SETTLED_NS = 2_000_000_000  # a file that changed later than this may change again within one tick of its clock

Stamp = tuple[int, ...]


def file_checksum(path: Path) -> str:
    """MD5 of the file's bytes in hex digits; of one that is as it was when it was read before, without reading it.

    It is known again by its path, device, inode, size, time of modification and time of status change. The last cannot
    be set by anyone, so that whatever changes the bytes changes the key, except within one tick of the file system's
    clock: what changed in the last two seconds is read again.

    Raises:
        OSError: it cannot be read.
    """
    return _known(path, _read)


def folder_checksum(path: Path) -> str:
    """MD5 of the names and sizes of a folder's files, without those of its folders and hidden ones; none is read.

    Listed again when the folder's own times have changed: when a file was added, removed, renamed or replaced. One that
    was overwritten in place is not noticed.

    Raises:
        OSError: it cannot be read.
    """
    return _known(path, _list)


def joint_checksum(parts: Iterable[str]) -> str:
    """MD5 of several checksums or names, in this order; of a single one that one itself."""
    parts = list(parts)
    return parts[0] if len(parts) == 1 else hashlib.md5("\n".join(parts).encode(), usedforsecurity=False).hexdigest()


def _known(path: Path, measure: Callable[[str], tuple[str, bool]]) -> str:
    about = path.stat()
    stamp = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    if time.time_ns() - about.st_ctime_ns < SETTLED_NS:
        return measure(str(path))[0]
    return _settled(str(path.resolve()), stamp, measure)


@lru_cache(maxsize=8192)
def _settled(path: str, stamp: Stamp, measure: Callable[[str], tuple[str, bool]]) -> str:
    """Of a file that has not changed lately; `stamp` is part of the key."""
    key = hashlib.sha256(repr((path, stamp, measure.__name__)).encode()).hexdigest()[:32]
    kept = KEPT.expanduser() / key
    with suppress(OSError, UnicodeDecodeError):
        known = kept.read_text()
        if re.fullmatch("[0-9a-f]{32}", known):
            return known
    checksum, is_large = measure(path)
    if is_large:
        with suppress(OSError):  # a home that cannot be written to: the next process reads the file again
            _write(kept, checksum)
    return checksum


def _write(path: Path, content: str) -> None:
    """Whole or not at all, whoever else writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as draft:
        draft.write(content)
    Path(draft.name).replace(path)


def _read(path: str) -> tuple[str, bool]:
    """The checksum of a file, and whether it is worth keeping."""
    with open(path, "rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        if num_bytes >= SLOW_BYTES:
            print(f"reading {path} ({num_bytes / 1e9:.1f} GB) once, for its checksum", file=sys.stderr)
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    return digest, num_bytes >= LARGE_BYTES


def _list(path: str) -> tuple[str, bool]:
    """The checksum of a folder, and whether it is worth keeping."""
    with os.scandir(path) as entries:
        rows = sorted(
            f"{entry.stat().st_size} {entry.name}"
            for entry in entries
            if not entry.name.startswith(".") and entry.is_file()
        )
    text = "\n".join(rows).encode("utf-8", "surrogateescape")
    return hashlib.md5(text, usedforsecurity=False).hexdigest(), len(rows) >= LARGE_ENTRIES
