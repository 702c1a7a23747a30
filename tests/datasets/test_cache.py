"""`build_once`: a result appears complete and is built once, by any number of processes, also after a crash."""

import subprocess
import sys
import time
from pathlib import Path

from syncline.datasets import cache

# Two parts, written slowly: the folder must never appear with only one of them.
MAKER = """
import sys, time
from pathlib import Path
sys.path.append(sys.argv[4])  # this module alone: importing the package takes seconds
from cache import build_once

def make(empty):
    assert list(empty.iterdir()) == []
    with open(sys.argv[2], "a") as log:
        log.write("made\\n")
    (empty / "one").write_text("1")
    time.sleep(float(sys.argv[3]))
    (empty / "two").write_text("2")

folder = build_once(Path(sys.argv[1]), make)
print(sorted(path.name for path in folder.iterdir()))
"""


def start(folder: Path, log: Path, pause_s: float) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", MAKER, str(folder), str(log), str(pause_s), str(Path(cache.__file__).parent)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_of_several_processes_one_builds_it_and_the_others_wait(tmp_path: Path) -> None:
    log = tmp_path / "log"
    makers = [start(tmp_path / "thing", log, 0.5) for _ in range(2)]
    said = [maker.communicate(timeout=60)[0] for maker in makers]
    assert said == ["['one', 'two']\n"] * 2
    assert log.read_text() == "made\n"


def test_an_interrupted_build_leaves_nothing_that_looks_complete(tmp_path: Path) -> None:
    folder, log = tmp_path / "thing", tmp_path / "log"
    broken = start(folder, log, 60)
    wait_for(log)
    broken.kill()
    broken.communicate(timeout=60)
    assert not folder.exists()
    assert start(folder, log, 0).communicate(timeout=60)[0] == "['one', 'two']\n"
    assert not folder.with_name("thing.part").exists()
