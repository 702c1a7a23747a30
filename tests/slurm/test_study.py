"""A study in Slurm: each stage is an array, and the job after it asks the study again."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from slurm_tools import Tools
from studies.made import SMALL, finish

from runners.commands import call, main
from runners.slurm import submit
from syncline.config import ConfigError, RunConfig, SlurmConfig, compose
from syncline.plan import Entry, Plan
from syncline.records.plans import plan_path, read_plan
from syncline.records.studies import read_study

WORDS = [*SMALL, "runner=slurm"]


def only_study(results: Path) -> Path:
    (path,) = (results / "studies").glob("*.json")
    return path


def test_the_job_after_a_stage_runs_the_same_command(
    cluster: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "my results"
    assert call([*WORDS, "runner.partition=gpu", f"results={results}"]) == 0
    assert "job 17: 6 runs in 6 tasks, its next stage is job 18" in capsys.readouterr().out
    array, after = map(shlex.split, cluster.asked("sbatch"))
    (script,) = results.glob("plans/*.slurm/1/next.sbatch")
    assert after[:2] == ["--parsable", "--dependency=afterany:17"]
    assert array[-1].endswith("array.sbatch")
    text = script.read_text()
    assert "#SBATCH --partition=gpu" in text
    command = shlex.split(text.splitlines()[-1])
    assert command[:4] == [sys.executable, "-P", "-m", "syncline"]
    assert set(command[4:]) == {*WORDS, "runner.partition=gpu", "--follows=0", f"results={results}"}


def test_the_next_job_submits_the_next_stage_and_the_last_one_the_answer(
    cluster: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*WORDS, f"results={tmp_path}"]
    assert call([*words]) == 0
    follows, stages = 0, []
    while (study := read_study(only_study(tmp_path))).answer is None:
        assert study.present is not None
        stages.append(study.present["name"])
        for planned in read_plan(plan_path(tmp_path, study.plan)).runs:
            if not (tmp_path / planned.identity).exists():
                finish(tmp_path, compose(planned.overrides)[0])
        capsys.readouterr()
        assert call([*words, f"--follows={follows}"]) == 0
        follows = study.num_trials
    assert stages == ["screen 1", "full 1"]
    assert len(cluster.asked("sbatch")) == 2 * len(stages)
    assert "arm same: optimizer.lr=0.01" in capsys.readouterr().out


def test_the_next_job_does_not_submit_what_was_in_vain(cluster: Tools, tmp_path: Path) -> None:
    words = [*WORDS, f"results={tmp_path}"]
    assert call([*words]) == 0
    with pytest.raises(ConfigError, match="screen 1: no run was made since the last job; its output tells why"):
        call([*words, "--follows=0"])
    assert len(cluster.asked("sbatch")) == 2
    assert call([*words]) == 0  # a user may
    assert len(cluster.asked("sbatch")) == 4


def test_cancelling_a_stage_cancels_the_job_that_would_submit_more(cluster: Tools, tmp_path: Path) -> None:
    cluster.says("squeue", "17 0 PENDING\n18 0 PENDING")
    cluster.says("scancel", "")
    assert call([*WORDS, f"results={tmp_path}"]) == 0
    study = read_study(only_study(tmp_path))
    assert main(["cancel", study.plan, "--results", str(tmp_path)]) == 0
    assert cluster.asked("scancel") == ["18 17"]


def test_a_follow_up_that_was_refused_is_submitted_by_the_same_command(
    cluster: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.numbers("sbatch", 17, most=1)
    words = [*WORDS, f"results={tmp_path}"]
    with pytest.raises(ConfigError, match="sbatch: exit code 1"):
        call([*words])
    assert read_plan(plan_path(tmp_path, read_study(only_study(tmp_path)).plan)).name == "tune", "not a stage alone"
    queue = "\n".join(f"17 {index} PENDING" for index in range(6))
    cluster.says("squeue", queue)
    cluster.numbers("sbatch", 17)
    assert call([*words]) == 0
    assert "job 19: the next stage of runs in Slurm already; output in " in capsys.readouterr().out
    assert cluster.asked("sbatch")[-1].startswith("--parsable --dependency=afterany:17 ")
    cluster.says("squeue", f"{queue}\n19 N/A PENDING")
    assert call([*words]) == 0
    assert len(cluster.asked("sbatch")) == 3


def test_a_report_waits_for_all_jobs_that_hold_runs_of_its_plan(cluster: Tools, tmp_path: Path) -> None:
    entries = [Entry("row", (f"seed={seed}",), RunConfig(seed=seed, epochs=1.0)) for seed in range(3)]
    runs = {"a": entries[:2], "b": entries[1:], "c": entries[:1]}
    plans = [Plan(f"paper/{name}", "smoke", tuple(some), {}) for name, some in runs.items()]
    made, _ = submit(plans, tmp_path, SlurmConfig())
    assert [(job.job_id, job.after_id) for job in made] == [("17", "18"), ("19", "20"), (None, "21")]
    waits = [word for line in cluster.asked("sbatch") for word in line.split() if word.startswith("--dep")]
    assert waits == [f"--dependency=afterany:{ids}" for ids in ("17", "17:19", "17")]
    cluster.says("squeue", "17 0 RUNNING\n17 1 PENDING\n18 N/A PENDING\n19 1 PENDING\n20 N/A PENDING\n21 N/A PENDING")
    assert submit(plans, tmp_path, SlurmConfig()) == ([], 5)


def test_without_submission_both_scripts_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*WORDS, "runner.submit=false", f"results={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "6 runs in 6 tasks, not submitted: sbatch " in out
    assert "its next stage: sbatch --dependency=afterany:JOB " in out


def test_folders_may_have_spaces_and_signs_of_the_shell_and_of_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, results = tmp_path / "a$HOME b", tmp_path / "my results %j"
    here.mkdir()
    monkeypatch.chdir(here)
    words = ["strategy=bsp", "max_updates=10", "gradients=false", "launcher=slurm", "launcher.submit=false"]
    assert call(["run", *words, f"results={results}"]) == 0
    (script,) = results.glob("plans/*.slurm/1/array.sbatch")
    assert f"not submitted: sbatch {shlex.quote(str(script))}\n" in capsys.readouterr().out
    lines = script.read_text().splitlines()
    log = str(script.parent).replace("%", "%%")
    assert f'#SBATCH --output="{log}/%a.txt"' in lines
    assert f"cd {shlex.quote(str(here))} || exit" in lines


def test_the_report_of_an_experiment_is_still_the_job_after_it(cluster: Tools, tmp_path: Path) -> None:
    assert call(["run", "+experiment=psp/fig2", "scale=smoke", "runner=slurm", f"results={tmp_path}"]) == 0
    (script,) = tmp_path.glob("plans/*.slurm/1/report.sbatch")
    assert " -m syncline report psp/fig2 --scale smoke --results " in script.read_text()
    assert json.loads((script.parent / "job.json").read_text())["job_id"] == "17"
