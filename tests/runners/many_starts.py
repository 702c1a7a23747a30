"""run.py, started as often as a test asks, each time as a fork of this process: in milliseconds, not seconds.

A line of words on stdin starts one and is answered with its process id. `wait` is answered with the exit code of the
first that was not waited for (minus the signal, if one ended it). Each finished record adds its folder to $MADE.
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import scipy.special  # noqa: F401  what a run would import first

import runners.pool
import syncline.simulation.run  # noqa: F401
from runners import command_line
from runners.planning import sweep_plan
from syncline.records.environment import environment
from syncline.records.writer import RecordWriter

finish, child = RecordWriter.finish, runners.pool._child


def counted_finish(record: RecordWriter, summary: dict[str, Any]) -> None:
    finish(record, summary)
    with open(os.environ["MADE"], "a") as made:
        made.write(f"{record.folder}\n")


def alone(results: Path, restart: bool, pipe: Connection) -> None:
    """Holds no other process's end of a pipe, as a process that was not forked from run.py itself."""
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, 4096)
    child(results, restart, pipe)


def begin(words: list[str]) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    sys.argv = ["run.py", *words]
    try:
        command_line.run_and_exit(sys.argv[1:])
    except SystemExit as ended:
        os._exit(ended.code)


if __name__ == "__main__":
    RecordWriter.finish = counted_finish
    runners.pool._child = alone
    runners.pool.get_context = lambda method: multiprocessing.get_context("fork")
    sweep_plan(["strategy=asp", "gradients=false"])  # what is composed or found out once is quick then
    environment()
    print("ready", flush=True)
    started: list[int] = []
    for line in sys.stdin:
        if line.strip() == "wait":
            _, status = os.waitpid(started.pop(0), 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            begin(line.split())
        started.append(pid)
        print(pid, flush=True)
