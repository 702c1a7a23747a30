"""Slurm's commands that refuse or are not set up: one line, and nothing that looks like a submitted plan."""

from pathlib import Path

import pytest
from commands import TIMING
from slurm_tools import Tools
from studies.made import SMALL

from runners.commands import call
from syncline.config import ConfigError, SlurmConfig
from syncline.records.store import RecordError
from tests.refusals import refusal

UNCONFIGURED = """\
{name}: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host
{name}: error: fetch_config: DNS SRV lookup failed
{name}: error: _establish_config_source: failed to fetch config
{name}: fatal: Could not establish a configuration source
"""
WORDS = ["-m", "seed=0,1", *TIMING, "runner=slurm"]


def refused(results: Path, *words: str) -> str:
    return refusal(ConfigError, call, ["run", *WORDS, *words, f"results={results}"])


def test_clients_that_are_not_set_up_are_one_line_and_leave_nothing(tools: Tools, tmp_path: Path) -> None:
    for name in ("scontrol", "sbatch", "squeue"):
        tools.fails(name, UNCONFIGURED.format(name=name))
    line = refused(tmp_path / "results")
    assert line == "scontrol: Could not establish a configuration source; is Slurm set up on this machine?"
    assert not (tmp_path / "results").exists()


def test_an_allocation_whose_hosts_are_not_told_is_one_line(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[1-2]")
    words = ["runner=multinode", "runner.start=srun", "runner.nodes=2", f"results={tmp_path}"]
    tools.fails("scontrol", UNCONFIGURED.format(name="scontrol"))
    with pytest.raises(RecordError, match=r"^scontrol: Could not establish a configuration source;[^\n]+$"):
        call(["run", *words])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RecordError, match=r"^scontrol is not on this machine's PATH:[^\n]+$"):
        call(["run", *words])


def test_a_job_that_is_refused_leaves_nothing_and_what_was_there(cluster: Tools, tmp_path: Path) -> None:
    cluster.fails("sbatch", "sbatch: error: invalid partition specified: gpu\nsbatch: error: submission failed\n")
    line = refused(tmp_path / "new", "runner.partition=gpu")
    assert line == "sbatch: invalid partition specified: gpu; submission failed"
    assert not list((tmp_path / "new").rglob("*.*"))

    assert call(["run", *WORDS, "runner.submit=false", f"results={tmp_path / 'old'}"]) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "old").rglob("*.*") if path.is_file()}
    refused(tmp_path / "old", "runner.partition=gpu")
    assert {path: path.read_bytes() for path in (tmp_path / "old").rglob("*.*") if path.is_file()} == before


def test_an_array_that_is_too_large_is_refused_with_the_number_that_would_do(tools: Tools, tmp_path: Path) -> None:
    tools.says("scontrol", "MaxArraySize            = 3")
    tools.numbers("sbatch", 17)
    line = refused(tmp_path / "seven", "seed=0,1,2,3,4,5,6")
    rule = "launcher.runs_per_task must be at least 3: this cluster allows arrays of 3 tasks, and the plan has 7"
    assert line == rule
    words = [*WORDS, "seed=0,1,2,3,4,5,6", "runner.runs_per_task=3", f"results={tmp_path}"]
    assert call(["run", *words]) == 0


@pytest.mark.parametrize("time", ["2", "2:59", "0:02:59", "0-0:2"])
def test_a_time_within_which_a_task_would_be_stopped_at_once_is_refused(tmp_path: Path, time: str) -> None:
    line = refused(tmp_path, f"runner.time='{time}'", "runner.submit=false")
    rule = (
        "launcher.time must be at least launcher.signal_delay_s + 60 = 180 s, or a task is stopped as soon as it begins"
    )
    assert line == f"{rule}, got {time}"


@pytest.mark.parametrize("time", ["3", "3:00", "0:03:00", "1-0", "0-0:3", "0", "UNLIMITED"])
def test_a_longer_time_is_taken(time: str) -> None:
    assert SlurmConfig(time=time).time == time


def test_what_is_set_stands_on_the_command_line_which_no_variable_overrides(cluster: Tools, tmp_path: Path) -> None:
    """sbatch prefers SBATCH_PARTITION and the like to the options of a script, and its own words to both."""
    set_here = ["runner.partition=gpu", "runner.memory=8G", "runner.time=2:00:00", "runner.extra=['--exclude=n1']"]
    assert call(["run", *WORDS, *set_here, f"results={tmp_path / 'my results'}"]) == 0
    (asked,) = cluster.asked("sbatch")
    for word in ("--partition=gpu", "--mem=8G", "--time=2:00:00", "--array=0-1", "--exclude=n1", "--requeue"):
        assert f" {word} " in asked
    (script,) = (tmp_path / "my results").glob("plans/*.slurm/1/array.sbatch")
    assert f" --output={script.parent}/%a.txt " in asked


@pytest.mark.parametrize("words", [["run", *WORDS], [*SMALL, "runner=slurm"]], ids=["runs", "a study"])
def test_finished_runs_are_not_repeated(words: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rerun must be false in Slurm"):
        call([*words, "rerun=true", "runner.submit=false", f"results={tmp_path}"])
    assert not list(tmp_path.iterdir())
