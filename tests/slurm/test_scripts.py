"""The batch scripts: their text, and what their shell does with the signals that Slurm sends."""

import os
import signal
import subprocess
import sys
import time
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_tools import Tools

from runners.batch_scripts import array_script, next_script, ranges
from runners.stop import RESUMABLE
from syncline.config import SlurmConfig

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
ALL = SlurmConfig(
    partition="gpu",
    account="physics",
    qos="low",
    time="2-00:00:00",
    nodes=2,
    cpus=8,
    memory="32G",
    gpus=2,
    runs_per_task=4,
    signal_delay_s=300,
    extra=["--gres=gpu:a100:1", "--no-requeue"],
    setup=["module load cuda", "export NCCL_DEBUG=WARN"],
)


def test_every_resource_is_in_the_script() -> None:
    script = array_script(
        "dssp-table1-gpu",
        "/home/a/results/plans/dssp-table1-gpu.slurm/1/plan.json",
        "0-3,7%2",
        ALL,
        folder="/home/a/syncline",
        program="/home/a/syncline/.venv/bin/python run.py",
        log="/home/a/results/plans/dssp-table1-gpu.slurm/1/%a.txt",
        results="/home/a/results",
    )
    assert script == (GOLDEN / "array.sbatch").read_text()


def test_the_report_asks_for_little() -> None:
    script = next_script(
        "dssp-table1-gpu-report",
        "/home/a/syncline/.venv/bin/syncline report dssp/table1 --scale gpu --results /home/a/results",
        ALL,
        folder="/home/a/syncline",
        log="/home/a/results/plans/dssp-table1-gpu.slurm/1/report.txt",
    )
    assert script == (GOLDEN / "report.sbatch").read_text()


@pytest.mark.parametrize("script", sorted(ROOT.glob("slurm/*.sbatch")) + sorted(GOLDEN.glob("*.sbatch")), ids=str)
def test_bash_reads_every_script(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)


@given(st.sets(st.integers(0, 60)).filter(len), st.none() | st.integers(1, 9))
def test_ranges_name_each_number_once(numbers: set[int], max_parallel: int | None) -> None:
    words, _, most = ranges(numbers, max_parallel).partition("%")
    assert most == ("" if max_parallel is None else str(max_parallel))
    spans = [[int(number) for number in word.split("-")] for word in words.split(",")]
    assert list(chain.from_iterable(range(span[0], span[-1] + 1) for span in spans)) == sorted(numbers)
    assert all(after[0] > before[-1] + 1 for before, after in pairwise(spans)), "not the fewest"


class Task:
    """A task's script under bash, around a program that obeys as run.py does."""

    def __init__(self, folder: Path, tools: Tools, program: str, *setup: str) -> None:
        self.folder = folder
        tools.says("scontrol", "")
        executable = folder / "program"
        executable.write_text(f"#!{sys.executable} -IS\n{PROGRAM}{program}")
        executable.chmod(0o755)
        script = array_script(
            "test",
            "plan.json",
            "0-9",
            SlurmConfig(runs_per_task=3, setup=[*setup]),
            folder=str(folder),
            program=f"{executable} run.py",
            log="output.txt",
            results="results",
        )
        (folder / "script").write_text(script)
        environment = {"PATH": os.environ["PATH"], "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "4"}
        self.process = subprocess.Popen(["bash", folder / "script"], env=environment, cwd=folder)

    def wait_for(self, name: str) -> None:
        ends = time.monotonic() + 20
        while not (self.folder / name).exists():
            assert time.monotonic() < ends
            time.sleep(0.01)


# The program begins with this; its folder is the working directory.
PROGRAM = """
import os, signal, sys, time

def write(name, text=""):
    with open(name + ".draft", "w") as file:
        file.write(text)
    os.rename(name + ".draft", name)

def listen(code):
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os._exit(code))
    write("listens", str(os.getpid()))
    while True:
        time.sleep(1)

write("words", " ".join(sys.argv[1:]))
"""


def test_a_task_makes_its_part_of_the_plan_and_hands_on_the_exit_code(tmp_path: Path, tools: Tools) -> None:
    task = Task(tmp_path, tools, "sys.exit(3)")
    assert task.process.wait(20) == 3
    assert (tmp_path / "words").read_text() == "run.py --plan plan.json --runs 12:15 results=results"
    assert tools.asked("scontrol") == []


@pytest.mark.parametrize(("code", "requeued"), [(RESUMABLE, ["requeue 17_4"]), (0, [])], ids=["paused", "finished"])
def test_the_signal_before_the_time_limit_reaches_the_program_and_requeues_the_task_that_it_paused(
    code: int, requeued: list[str], tmp_path: Path, tools: Tools
) -> None:
    task = Task(tmp_path, tools, f"listen({code})")
    task.wait_for("listens")
    task.process.send_signal(signal.SIGUSR1)
    assert task.process.wait(20) == code
    assert tools.asked("scontrol") == requeued


@pytest.mark.processes
def test_a_signal_before_the_program_handles_it_is_sent_again(tmp_path: Path, tools: Tools) -> None:
    task = Task(tmp_path, tools, f"while not os.path.exists('now'): time.sleep(0.01)\nlisten({RESUMABLE})")
    task.wait_for("words")
    task.process.send_signal(signal.SIGUSR1)
    time.sleep(0.2)
    (tmp_path / "now").touch()
    assert task.process.wait(20) == RESUMABLE
    assert tools.asked("scontrol") == ["requeue 17_4"]


@pytest.mark.processes
def test_a_signal_during_the_setup_reaches_the_program_afterwards(tmp_path: Path, tools: Tools) -> None:
    task = Task(tmp_path, tools, f"listen({RESUMABLE})", "touch begun", "until [ -e now ]; do sleep 0.01; done")
    task.wait_for("begun")
    task.process.send_signal(signal.SIGUSR1)
    (tmp_path / "now").touch()
    assert task.process.wait(20) == RESUMABLE
    assert tools.asked("scontrol") == ["requeue 17_4"]


def test_a_cancelled_or_preempted_task_does_not_requeue_itself(tmp_path: Path, tools: Tools) -> None:
    """Slurm signals the script and the program; it decides whether the task is requeued."""
    task = Task(tmp_path, tools, f"listen({RESUMABLE})")
    task.wait_for("listens")
    task.process.send_signal(signal.SIGTERM)
    os.kill(int((tmp_path / "listens").read_text()), signal.SIGTERM)
    assert task.process.wait(20) == RESUMABLE
    assert tools.asked("scontrol") == []
