"""What a test may not leave behind."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 60.0  # for threads and processes to notice that their connection is closed, on a machine that is busy


@contextmanager
def nothing_left() -> Iterator[None]:
    """No thread and no socket is left afterwards that did not exist before."""
    threads, sockets = set(threading.enumerate()), open_sockets()
    yield
    wait_until(lambda: set(threading.enumerate()) <= threads and open_sockets() <= sockets)
    assert set(threading.enumerate()) <= threads, threading.enumerate()
    assert open_sockets() <= sockets


def open_sockets() -> set[str]:
    """The sockets of this process, each by its inode."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(path)
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def wait_until(condition) -> bool:
    ends = time.monotonic() + PATIENCE_S
    while not (met := condition()) and time.monotonic() < ends:
        time.sleep(0.01)
    return met
