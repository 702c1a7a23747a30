"""Stopping a process: by SIGTERM or SIGUSR1 (as Slurm sends them before a time limit), a lost terminal, or Ctrl-C.

The first signal raises StopRequested, unless it is deferred: then it only asks, so that a run in virtual time can write
a checkpoint, or a plan can wait for those of its runs. A further signal interrupts that, too, unless it is SIGUSR1: a
batch script may send that one repeatedly, until the process stops.
"""

import atexit
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # exit code, as shells have it
RESUMABLE = 75  # exit code of a process that was asked to stop: the same command resumes (EX_TEMPFAIL of sysexits.h)
ECHO_S = 2.0  # within it a signal counts as the same: the batch system and the parent process may both send it

NOTICE = getattr(signal, "SIGUSR1", None)  # a batch system's notice of the time limit; Windows has none
HANG_UP = getattr(signal, "SIGHUP", None)  # likewise
SIGNALS = (signal.SIGTERM, signal.SIGINT, *filter(None, [NOTICE, HANG_UP]))


class StopRequested(KeyboardInterrupt):
    """This signal asked the process to stop; `kept` says what can be resumed, if that is known."""

    def __init__(self, number: int, kept: str = "") -> None:
        super().__init__(kept)
        self.number, self.kept = number, kept

    @property
    def code(self) -> int:
        return INTERRUPTED if self.number == signal.SIGINT else RESUMABLE


class SignalHandler:
    """The handler of all SIGNALS of a process."""

    def __init__(self) -> None:
        self.is_deferred = False  # the first signal only sets `requested`
        self.requested: int | None = None  # the first signal
        self._received_at = -math.inf

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        now = time.monotonic()
        if number != signal.SIGINT and now - self._received_at < ECHO_S:
            return
        if number == NOTICE and self.requested is not None:
            return  # a repeated notice still leaves time for a checkpoint
        self._received_at = now
        is_first, self.requested = self.requested is None, self.requested or number
        if not (is_first and self.is_deferred):
            raise StopRequested(self.requested)


def handle_signals(ctrl_c: bool = True) -> None:
    """Install a SignalHandler; without `ctrl_c`, that signal is ignored and left to the parent process.

    A process that was started to ignore the loss of its terminal (nohup) goes on ignoring it.
    """
    handler = SignalHandler()
    for number in SIGNALS:
        if number != HANG_UP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    if not ctrl_c:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    """All is done: Python would restore the defaults, by which a late signal kills it."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def defer_stop() -> Iterator[Callable[[], int | None]]:
    """Defer the first signal while it is entered; yields a function that returns that signal, or None.

    It always returns None in a process that did not call `handle_signals`.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if not isinstance(handler, SignalHandler):
        yield lambda: None
        return
    before, handler.is_deferred = handler.is_deferred, True
    try:
        yield lambda: handler.requested
    finally:
        handler.is_deferred = before


def unblock_signals() -> None:
    """Undo `block_signals` in a process that was started while its parent had entered it."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextmanager
def block_signals() -> Iterator[None]:
    """Block SIGNALS until it is left; processes that are started meanwhile inherit the mask.

    Does nothing where signals cannot be blocked (Windows).
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
