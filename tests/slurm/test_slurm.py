"""Plans through a real Slurm of three nodes: they finish, resume, and recover when something dies."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from commands import ROOT, Said, made, record_of, without_wall_time
from slurm_lab import Slurm, skip_without_slurm, slurm
from studies.made import SMALL

from runners.commands import call
from runners.torchrun import TORCHRUN
from syncline.records.events import read_events
from syncline.records.store import read_metrics, read_summary
from syncline.records.studies import read_study

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]

LONG = ["epochs=40", "eval_every_epochs=1"]  # a few seconds, and a look at it every few tenths
STALLED_S = 120.0  # without any progress
LOOK_S = 5.0  # between two looks for some
TWO_STAGES = ["tune.factor=1000", "tune.seeds=[7]"]  # the best value is the grid's middle: it is not extended


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    skip_without_slurm()
    with slurm(tmp_path_factory.mktemp("slurm"), num_nodes=3) as lab:
        yield lab


class Cluster:
    """What a user of the cluster types, with results of its own."""

    def __init__(self, lab: Slurm, results: Path) -> None:
        self._lab, self.results = lab, results

    def run(self, *words: str) -> Said:
        return self.study("run", *words)

    def study(self, *words: str) -> Said:
        return self._python("-m", "syncline", *words, f"results={self.results}")

    def submit(self, *words: str, launcher: str = "runner=slurm") -> str:
        """Returns the array job's id."""
        said = self.run(*words, launcher)
        assert said.code == 0, said
        assert said.out.startswith("job "), said
        return said.out.split()[1].rstrip(":")

    def operate(self, *words: str) -> Said:
        return self._python("-m", "syncline", *words, "--results", str(self.results))

    def states(self) -> list[str]:
        """Of the runs of the only plan, in its order."""
        said = self.operate("status", "--json", "--runs")
        assert said.code == 0, said
        (plan,) = json.loads(said.out)["plans"]
        return [run["state"] for run in plan["runs"]]

    def wait_for_rows(self, identity: str, number: int) -> None:
        """Until a run has been evaluated so often."""
        path = self.results / identity / "metrics.jsonl"
        self.wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= number)

    def wait_until_over(self) -> None:
        """Until no task is queued or running."""
        self.wait_until(lambda: not self._lab.states(), pause_s=0.5)  # each look costs Slurm some work

    def wait_until(self, condition: Callable[[], bool], pause_s: float = 0.1) -> None:
        """While a task changes its state or a file grows, however slowly."""
        before, since = self._progress(), time.monotonic()
        looked = since
        while not condition():
            time.sleep(pause_s)
            if (now := time.monotonic()) - looked < LOOK_S:
                continue
            looked = now
            if (progress := self._progress()) != before:
                before, since = progress, now
            assert now - since < STALLED_S, f"{self._lab.states()}\n{self.output()}"

    def _progress(self) -> tuple[dict[str, str], dict[Path, int]]:
        """The states of the tasks, and the sizes of the files of records, plans and their output."""
        sizes = dict[Path, int]()
        for folder, _, files in os.walk(self.results):  # which passes over folders that vanish
            for path in (Path(folder, name) for name in files):
                with suppress(FileNotFoundError):  # it was a draft
                    sizes[path] = path.stat().st_size
        return self._lab.states(), sizes

    def output(self) -> str:
        """Of all tasks."""
        files = sorted((self.results / "plans").glob("*.slurm/*/*.txt"))
        return "\n".join(f"{file.name}: {file.read_text()}" for file in files)

    def _python(self, *words: str) -> Said:
        said = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**self._lab.environment, "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Said(said.returncode, said.stdout, said.stderr)


@pytest.fixture
def cluster(lab: Slurm, tmp_path: Path) -> Cluster:
    return Cluster(lab, tmp_path)


def test_an_array_of_eight_runs_finishes_and_its_report_is_written(lab: Slurm, cluster: Cluster) -> None:
    words = ["+experiment=psp/fig2", "scale=smoke", "runner=slurm", "runner.runs_per_task=4"]
    said = cluster.run(*words)
    assert said.code == 0, said
    assert "8 runs in 2 tasks, its report is job" in said.out
    assert set(cluster.states()) <= {"queued", "running", "finished"}
    cluster.wait_until_over()
    assert cluster.states() == ["finished"] * 8, cluster.output()
    assert (cluster.results / "reports" / "psp-fig2-smoke.svg").stat().st_size > 1000, cluster.output()
    assert "nothing is left" in cluster.run(*words).out


def test_a_task_that_is_out_of_time_is_requeued_and_ends_as_if_uninterrupted(
    lab: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    """The signal is the one that sbatch --signal=B:USR1 has Slurm send."""
    record = record_of(cluster.results, *LONG)
    job = cluster.submit(*LONG)
    cluster.wait_for_rows(record.name, 3)
    lab.ask("scancel", "--batch", "--signal=USR1", f"{job}_0")
    undisturbed = made(tmp_path / "undisturbed", *LONG)
    cluster.wait_until_over()
    assert cluster.states() == ["finished"], cluster.output()
    summary = read_summary(record)
    assert summary["restarts"] == 1
    wall = {"restarts", "wall_s"}
    assert {key: value for key, value in summary.items() if key not in wall} == {
        key: value for key, value in read_summary(undisturbed).items() if key not in wall
    }
    assert without_wall_time(read_metrics(record)) == without_wall_time(read_metrics(undisturbed))
    assert read_events(record / "events.arrow").equals(read_events(undisturbed / "events.arrow"))


def test_after_scancel_and_the_loss_of_a_node_status_is_true_and_retry_completes_the_plan(
    lab: Slurm, cluster: Cluster
) -> None:
    words = ["-m", "seed=0,1,2", *LONG]
    options = ["runner.cpus=4", "runner.extra=[--no-requeue]"]  # a node for each; what is lost stays lost
    records = [record_of(cluster.results, *LONG, f"seed={seed}") for seed in range(3)]
    job = cluster.submit(*words, *options)
    for record in records:
        cluster.wait_for_rows(record.name, 2)
    assert cluster.states() == ["running"] * 3
    lab.ask("scancel", f"{job}_0")
    lost = lab.node_of(f"{job}_1")
    lab.kill_node(lost)
    try:
        cluster.wait_until(lambda: cluster.states()[1] == "queued")  # Slurm has not noticed, and no process makes it
        cluster.wait_until_over()
        assert cluster.states() == ["unfinished", "unfinished", "finished"], cluster.output()
        name = next((cluster.results / "plans").glob("sweep-*.json")).stem
        said = cluster.operate("retry", name)
        assert said.code == 0, said
        assert "2 runs in 2 tasks" in said.out
        cluster.wait_until_over()
        assert cluster.states() == ["finished"] * 3, cluster.output()
        assert [read_summary(record)["restarts"] for record in records] == [1, 0, 0]
    finally:
        lab.start_node(lost)
        lab.wait_for_idle(3)


def test_a_run_over_three_nodes_is_one_task(lab: Slurm, cluster: Cluster) -> None:
    """Two shards and three workers, which srun starts: a node holds a shard and a worker, or a worker alone."""
    run = ["strategy=psp", "cluster.workers=3", "cluster.shards=2", "max_updates=12", "epochs=null"]
    hosts = ["runner=multinode", "runner.start=srun", "runner.nodes=3", "runner.master_addr=127.0.0.1"]
    cluster.submit(*run, *hosts, "launcher.nodes=3", launcher="launcher=slurm")
    cluster.wait_until_over()
    assert cluster.states() == ["finished"], cluster.output()
    record = record_of(cluster.results, *run, *hosts)
    summary = read_summary(record)
    assert (summary["engine"], summary["updates"], summary["restarts"]) == ("live", 12, 0)
    log = read_events(record / "events.arrow").to_pandas()
    assert set(log[log.kind == "pushed"].worker) == {0, 1, 2}


def test_the_script_for_several_nodes_starts_torchrun_on_each_and_a_notice_leaves_a_checkpoint(
    lab: Slurm, cluster: Cluster
) -> None:
    words = ["strategy=asp", "cluster.workers=2", "cluster.gradient_s=[0.02]", "runner.pace=absolute"]
    words += ["model=softmax_regression", "max_updates=600", "epochs=null"]
    record = record_of(cluster.results, *words, "runner=multinode", "runner.nodes=2")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]

    def submit() -> str:
        """Returns the job's id."""
        cluster.results.mkdir(exist_ok=True)
        options = ["--nodes=2", f"--export=ALL,MASTER_ADDR=127.0.0.1,MASTER_PORT={port},TORCHRUN={TORCHRUN}"]
        options += [f"--output={cluster.results}/%j.txt", f"--chdir={ROOT}", "--parsable"]
        return lab.ask("sbatch", *options, "slurm/multinode.sbatch", *words, f"results={cluster.results}").strip()

    job = submit()
    cluster.wait_until(lambda: (record / "snapshots" / "1.0-0.safetensors").exists())
    lab.ask("scancel", "--signal=USR1", job)
    cluster.wait_until_over()
    said = (cluster.results / f"{job}.txt").read_text()
    assert "checkpointed; the same command resumes it" in said, said
    assert list((record / "checkpoint").iterdir()), said
    job = submit()
    cluster.wait_until_over()
    said = (cluster.results / f"{job}.txt").read_text()
    assert (record / "summary.json").exists(), said
    assert (read_summary(record)["updates"], read_summary(record)["restarts"]) == (600, 1)


def test_a_study_goes_on_by_itself_from_stage_to_stage_to_its_answer(
    lab: Slurm, cluster: Cluster, tmp_path: Path
) -> None:
    words = [*SMALL, *TWO_STAGES]
    said = cluster.study(*words, "runner=slurm", "runner.runs_per_task=3")
    assert said.code == 0, said
    assert "6 runs in 2 tasks, its next stage is job" in said.out
    (path,) = (cluster.results / "studies").glob("*.json")
    cluster.wait_until(lambda: read_study(path).answer is not None or not lab.states(), pause_s=0.5)
    assert read_study(path).answer is not None, cluster.output()
    cluster.wait_until_over()
    assert call([*words, f"results={tmp_path / 'here'}"]) == 0
    (undisturbed,) = (tmp_path / "here" / "studies").glob("*.json")
    assert [stage["name"] for stage in read_study(path).stages] == ["screen 1", "full 1"]
    assert read_study(path).stages == read_study(undisturbed).stages
    assert read_study(path).answer == read_study(undisturbed).answer
