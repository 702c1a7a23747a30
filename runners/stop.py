"""StopRequested to stop: by SIGTERM or SIGUSR1 (as Slurm sends them before a time limit), or by Ctrl-C.

The first signal breaks off what the process does, as an exception, or where somebody is patient only asks: a run in
virtual time then writes a checkpoint, a plan waits for those of its runs. The next one breaks that off, too, unless it
is SIGUSR1: that never says more than the first time, so that a batch system's script may send it until it is heard.
"""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN = 75  # exit code: told to stop, the same command resumes (EX_TEMPFAIL of sysexits.h)
CTRL_C = 130  # exit code, as shells have it
ECHO_S = 2.0  # the same signal may come from several sides: from a batch system, and from who started us

NOTICE = getattr(signal, "SIGUSR1", None)  # as a batch system gives it; Windows has none
SIGNALS = (signal.SIGTERM, signal.SIGINT, *filter(None, [NOTICE]))


class StopRequested(KeyboardInterrupt):
    """StopRequested to stop by this signal; `kept` says what of it goes on later, if that is known."""

    def __init__(self, number: int, kept: str = "") -> None:
        super().__init__(kept)
        self.number, self.kept = number, kept

    @property
    def code(self) -> int:
        """Of the process that ends with it."""
        return CTRL_C if self.number == signal.SIGINT else AGAIN


class SignalHandler:
    """The handler of all SIGNALS of a process."""

    def __init__(self) -> None:
        self.is_patient = False
        self.asked: int | None = None  # the first signal
        self._heard_at = -math.inf

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        now = time.monotonic()
        if number != signal.SIGINT and now - self._heard_at < ECHO_S:
            return
        if number == NOTICE and self.asked is not None:
            return  # a notice, however often it is given, leaves time for a checkpoint
        self._heard_at = now
        is_first, self.asked = self.asked is None, self.asked or number
        if not (is_first and self.is_patient):
            raise StopRequested(self.asked)


def listen(ctrl_c: bool = True) -> None:
    """From now on this process hears SIGNALS; without `ctrl_c`, where the parent hears it, that one is ignored."""
    ears = SignalHandler()
    for number in SIGNALS:
        signal.signal(number, ears)
    if not ctrl_c:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def defer_stop() -> Iterator[Callable[[], int | None]]:
    """While it is entered, the first signal breaks off nothing; gives what tells whether, and which, has come.

    In a process that does not `listen`, none ever does.
    """
    ears = signal.getsignal(signal.SIGTERM)
    if not isinstance(ears, SignalHandler):
        yield lambda: None
        return
    was_patient, ears.is_patient = ears.is_patient, True
    try:
        yield lambda: ears.asked
    finally:
        ears.is_patient = was_patient


def hear_again() -> None:
    """In a process that was started while its parent was block_signals."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


@contextmanager
def block_signals() -> Iterator[None]:
    """What comes while it is entered is heard at its end; processes that are started meanwhile stay block_signals.

    Where signals cannot be blocked (Windows), nothing is done.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
