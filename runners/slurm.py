"""Plans as array jobs of Slurm: written down, submitted, and left to it."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm.scripts import JobResources, array_script, ranges, report_script
from syncline.config import ConfigError, SlurmConfig
from syncline.operations.jobs import refusal, submissions, waiting
from syncline.plan import Plan
from syncline.records.plans import plan_path

PATIENCE_S = 60.0  # with sbatch on a busy cluster
PROJECT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Job:
    """A plan's array job, and the job that reports when it is over."""

    script: Path
    num_tasks: int
    num_runs: int
    job_id: str | None  # None: not submitted
    report_id: str | None  # None: not submitted, or there is nothing to report


def submit(plans: Sequence[Plan], results: Path, options: SlurmConfig, rerun: bool) -> tuple[list[Job], int]:
    """Submit what is left of the plans, an array job for each; what several share is in the first one's.

    Each plan is written down once its job is submitted: one that Slurm refuses leaves nothing.

    Returns:
        The jobs, and how many runs were left out since Slurm has them already.

    Raises:
        ConfigError: Slurm is not here, refuses, or allows fewer tasks.
        RecordError: it does not answer, or what was submitted before cannot be read.
    """
    if options.submit and shutil.which("sbatch") is None:
        raise ConfigError(
            "launcher=slurm needs sbatch on this machine's PATH; launcher.submit=false writes the script alone"
        )
    waits = waiting(job for plan in plans for job in submissions(results, plan.stem)) if options.submit else {}
    taken, num_waiting = set(waits), 0
    jobs = []
    for plan in plans:
        left = {entry.config.identity for entry in plan.left(results, rerun)}
        num_waiting += len(left & set(waits))
        left -= taken
        taken |= left
        if left:
            jobs.append(_submit_one(plan, left, results.absolute(), options))
        else:
            plan.write(results)
    return jobs, num_waiting


def _submit_one(plan: Plan, left: set[str], results: Path, options: SlurmConfig) -> Job:
    size = options.runs_per_task
    identities = [entry.config.identity for entry in plan.unique()]
    parts = [identities[first : first + size] for first in range(0, len(identities), size)]
    tasks = {index: part for index, part in enumerate(parts) if left.intersection(part)}
    if options.submit:
        _check_size(max(tasks) + 1)
    path = plan_path(results, plan.stem)
    folder = _new_folder(path.with_suffix(".slurm"))
    own_plan = plan.write_to(folder / "plan.json")  # another plan of this name may be written before it runs
    wishes = JobResources(
        options.partition,
        options.account,
        options.qos,
        options.time,
        options.nodes,
        options.cpus,
        options.memory,
        options.gpus,
        options.extra,
        options.setup,
    )
    script = folder / "array.sbatch"
    script.write_text(
        array_script(
            path.stem,
            shlex.quote(str(own_plan)),
            ranges(tasks, options.max_parallel),
            wishes,
            project=str(PROJECT),
            python=shlex.quote(sys.executable),
            log=f"{folder}/%a.txt",
            results=shlex.quote(str(results)),
            runs_per_task=size,
            signal_delay_s=options.signal_delay_s,
        )
    )
    report = folder / "report.sbatch"
    if "/" in plan.name:  # an experiment's
        report.write_text(
            report_script(
                f"{path.stem}-report",
                plan.name,
                plan.scale,
                shlex.quote(str(results)),
                wishes,
                project=str(PROJECT),
                python=shlex.quote(sys.executable),
                log=f"{folder}/report.txt",
            )
        )
    job_id = report_id = None
    if options.submit:
        try:
            job_id = _sbatch(script)
        except ConfigError:
            shutil.rmtree(folder)
            with suppress(OSError):  # it holds other jobs
                folder.parent.rmdir()
            raise
        job = {"job_id": job_id, "submitted": time.time(), "tasks": tasks}
        (folder / "job.json.draft").write_text(json.dumps(job) + "\n")
        (folder / "job.json.draft").replace(folder / "job.json")
    plan.write(results)
    if job_id is not None and report.exists():
        report_id = _sbatch(report, f"--dependency=afterany:{job_id}")
    return Job(script, len(tasks), len(left), job_id, report_id)


def _new_folder(parent: Path) -> Path:
    """The next number's."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(folder.name) for folder in parent.iterdir() if folder.name.isdigit()), default=0)
    while True:
        try:
            (parent / str(number)).mkdir()
            return parent / str(number)
        except FileExistsError:  # by somebody else, just now
            number += 1


def _check_size(num_indices: int) -> None:
    """Slurm refuses larger arrays with an error that does not say what is allowed."""
    said = _ask(["scontrol", "show", "config"])
    words = next((line.split("=")[1] for line in said.splitlines() if line.startswith("MaxArraySize")), "")
    if words.strip().isdigit() and num_indices > int(words):
        raise ConfigError(
            f"launcher.runs_per_task must be larger: this cluster allows arrays of {int(words)} tasks, "
            f"and the plan has {num_indices}"
        )


def _sbatch(script: Path, *options: str) -> str:
    """Submit; returns the job's id."""
    return _ask(["sbatch", "--parsable", *options, str(script)]).strip().partition(";")[0]


def _ask(command: Sequence[str]) -> str:
    environment = dict(os.environ)
    if "SLURM_JOB_ID" in environment:  # what describes this job would be taken for wishes of the new one
        for key in [key for key in environment if key.startswith("SLURM_") and key != "SLURM_CONF"]:
            del environment[key]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=environment
        ).stdout
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{command[0]} gave no answer within {PATIENCE_S:g} s") from None
    except subprocess.CalledProcessError as error:
        raise ConfigError(refusal(error)) from None
