"""Processes that are forks of another one."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def die_with(parent: int) -> None:
    """Have this process killed when its parent, of this process id, ends; at once if it has ended already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
