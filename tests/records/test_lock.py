"""Locks: one owner at a time, among threads of processes that race; who is dead or silent is followed."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from operations.planned import age

from syncline.records import lock
from syncline.records.lock import Held, announced, at_work_on, held, owner_of


def left_behind(folder: Path, **changes: object) -> Path:
    """A lock of another process."""
    path = folder.with_name(f"{folder.name}.lock")
    about = {"host": socket.gethostname(), "pid": os.getpid(), "born": -7, "since": time.time(), "silent_s": 0.0}
    path.write_text(json.dumps(about | changes))
    return path


def test_its_owner_is_reported_and_no_other_process_gets_it(tmp_path: Path):
    run = tmp_path / "run"
    assert owner_of(run) is None
    with held(run):
        owner = owner_of(run)
        assert owner is not None
        assert (owner.host, owner.pid) == (socket.gethostname(), os.getpid())
        with pytest.raises(Held, match=f"^run is already running in process {os.getpid()} on "), held(run):
            pass
        assert owner_of(run) is not None, "a refused process removes nothing"
        with held(tmp_path / "another"):
            pass
    assert owner_of(run) is None
    with pytest.raises(ZeroDivisionError), held(run):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == [], "nothing is left, of a run that fails neither"


def test_a_dead_process_of_this_host_is_followed_at_once(tmp_path: Path):
    """Killed in the middle, so that it could not clean up; a process that got its number later is another one."""
    words = "import sys, time; from pathlib import Path; from syncline.records.lock import held\n"
    words += "with held(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", words, str(tmp_path / "run")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(Held), held(tmp_path / "run"):
            pass
        process.kill()
    assert owner_of(tmp_path / "run") is None
    with held(tmp_path / "run"):
        pass
    left_behind(tmp_path / "run", born=1)  # this process, but as if it were older
    with held(tmp_path / "run"):
        pass


def test_another_hosts_owner_is_believed_until_it_has_been_silent_for_long(tmp_path: Path):
    path = left_behind(tmp_path / "run", host="far-away")
    with pytest.raises(Held, match="far-away"), held(tmp_path / "run"):
        pass
    age(path, lock.STALE_S + 1)
    assert owner_of(tmp_path / "run") is None
    with held(tmp_path / "run"):
        pass


def test_the_owner_shows_that_it_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock, "RENEW_S", 0.02)
    with held(tmp_path / "run"):
        path = tmp_path / "run.lock"
        os.utime(path, (0, 0))
        until = time.monotonic() + 60
        while path.stat().st_mtime == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0


@pytest.mark.parametrize("content", ["", "{", '{"host": "far-away"}'])
def test_the_age_of_a_broken_lock_decides(tmp_path: Path, content: str):
    """As a failure of power leaves it."""
    path = tmp_path / "run.lock"
    path.write_text(content)
    with pytest.raises(Held, match=r"an unknown host \(broken lock\)"), held(tmp_path / "run"):
        pass
    age(path, lock.STALE_S + 1)
    with held(tmp_path / "run"):
        pass


def test_a_lock_dated_tomorrow_blocks_nobody(tmp_path: Path):
    path = left_behind(tmp_path / "run", host="far-away")
    os.utime(path, (time.time() + 86400,) * 2)
    with held(tmp_path / "run"):
        pass


def test_an_interrupted_take_over_does_not_block_the_next(tmp_path: Path):
    left_behind(tmp_path / "run")
    guard = tmp_path / "run.lock.taking"
    guard.touch()
    age(guard, lock.GUARD_S + 1)
    with held(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_an_owner_that_ends_while_its_lock_is_read_removes_no_other_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It is read; then its owner gives it back and ends, and the next one takes it; then its owner is found dead."""
    left_behind(tmp_path / "run")
    read, was_read = lock._read, []

    def read_and_then(path, clock):
        owner = read(path, clock)
        if not was_read:
            was_read.append(owner)
            path.unlink()
            left_behind(tmp_path / "run", born=lock._born(os.getpid()))
        return owner

    monkeypatch.setattr(lock, "_read", read_and_then)
    lock._remove_stale(tmp_path / "run.lock")
    assert was_read
    assert not was_read[0].is_alive
    assert owner_of(tmp_path / "run") is not None, "the lock of the next one is still there"


def test_processes_of_a_plan_are_announced_and_there_may_be_several(tmp_path: Path):
    plans = [tmp_path / "one-smoke.json", tmp_path / "two-smoke.json"]
    with announced(plans):
        (me,) = at_work_on(plans[0])
        assert (me.host, me.pid) == (socket.gethostname(), os.getpid())
        dead = tmp_path / "two-smoke.elsewhere.1.owner"
        dead.write_text(json.dumps({"host": "far-away", "pid": 1, "born": 1, "since": 0.0}))
        assert len(at_work_on(plans[1])) == 2, "another host's is believed"
        age(dead, lock.STALE_S + 1)
        assert at_work_on(plans[1]) == [me]
    assert at_work_on(plans[0]) == []
    assert [path.name for path in tmp_path.iterdir()] == [dead.name]


def test_an_error_inside_an_announcement_stays_itself(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="of the body"), announced([tmp_path / "plan.json"]):
        raise FileNotFoundError("of the body")
    assert not list(tmp_path.iterdir())


RACER = """
import os, sys, time
from pathlib import Path
from syncline.records.lock import Held, held
run, inside, rounds = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

def enter(dies):
    try:
        with held(run):
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails if somebody is inside
            time.sleep(0.001)
            os.unlink(inside)
            if dies:
                os._exit(0)  # and leaves the lock behind
    except Held:
        os._exit(1)
    os._exit(0)

made = 0
until = time.monotonic() + 300
while made < rounds and time.monotonic() < until:
    child = os.fork()
    if child == 0:
        enter(dies=made % 3 == 0)
    made += os.waitpid(child, 0)[1] == 0
    time.sleep(0.0005)
print(made)
"""


@pytest.mark.processes
def test_of_processes_that_race_never_two_are_inside(tmp_path: Path):
    words = [sys.executable, "-c", RACER, str(tmp_path / "run"), str(tmp_path / "inside"), "15"]
    racers = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    said = [racer.communicate(timeout=360) for racer in racers]
    assert [(out.strip(), err) for out, err in said] == [("15", "")] * 4, "a third of them died inside"
