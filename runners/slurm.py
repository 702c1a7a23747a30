"""Plans as array jobs of Slurm: writes their scripts and submits them."""

import json
import math
import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from runners.batch_scripts import array_script, next_script, options_of, ranges
from syncline.config import ConfigError, SlurmConfig
from syncline.config.folders import VARIABLE, files, folders
from syncline.installation import program
from syncline.operations import jobs
from syncline.operations.tables import counted
from syncline.plan import Plan
from syncline.records.plans import plan_path
from syncline.records.store import write_file


@dataclass(frozen=True, slots=True)
class Job:
    """A plan's array job, and the job that follows it."""

    script: Path
    num_tasks: int  # 0: all runs are in other jobs, and only what follows is submitted
    num_runs: int
    job_id: str | None  # None: not submitted
    after: Path | None  # of the report, or of the follow-up
    after_id: str | None  # None: not submitted, or there is none


def submit(
    plans: Sequence[Plan], results: Path, options: SlurmConfig, follow_up: Sequence[str] | None = None
) -> tuple[list[Job], int]:
    """Submit the unfinished runs of the plans, an array job for each; runs that several share are in the first.

    What follows a plan waits for all jobs that hold runs of it. A plan is written once its job is submitted: one that
    Slurm refuses leaves no files. A study writes its plan itself.

    Args:
        follow_up: words of the command of `syncline` in the job after a stage of a study, which asks it again; None: of
            the plan of an artefact it is its report.

    Returns:
        The jobs, and how many runs were left out because they are queued or running in Slurm already.

    Raises:
        ConfigError: Slurm is not installed here, refuses the job, or allows fewer tasks.
        RecordError: Slurm does not answer, or an earlier submission cannot be read.
    """
    if options.submit and shutil.which("sbatch") is None:
        raise ConfigError(
            "launcher=slurm needs sbatch on this machine's PATH; launcher.submit=false writes the script alone"
        )
    earlier = {plan.stem: jobs.submissions(results, plan.stem) for plan in plans} if options.submit else {}
    before = list(chain.from_iterable(earlier.values()))
    queued = jobs.queue(before)
    holders: dict[str, set[str]] = {}  # identity -> ids of the jobs that hold the run
    for identity, job, _ in jobs.held(before, queued):
        holders.setdefault(identity, set()).add(job.job_id)
    waiting, num_waiting = set(holders), 0
    made = []
    for plan in plans:
        unfinished = {entry.config.identity for entry in plan.left(results)}
        num_waiting += len(unfinished & waiting)
        left = unfinished - set(holders)
        held_by = set[str]().union(*(holders.get(identity, ()) for identity in unfinished))
        is_followed = any(queued.get((str(job.next_id), "N/A")) == "PENDING" for job in earlier.get(plan.stem, ()))
        has_next = follow_up is not None or _has_report(plan)
        if left or (held_by and has_next and not is_followed):
            made.append(_submit_one(plan, left, held_by, results.absolute(), options, follow_up))
            holders |= {identity: {*filter(None, [made[-1].job_id])} for identity in left}
        elif follow_up is None:
            plan.keep(results)
    return made, num_waiting


def show_jobs(jobs: Sequence[Job], num_waiting: int) -> None:
    """A line a job, and what follows it."""
    for job in jobs:
        size = f"{counted(job.num_runs, 'run')} in {counted(job.num_tasks, 'task')}"
        what = "report" if job.after is None or job.after.stem == "report" else "next stage"
        if not job.num_tasks and job.after is not None:
            print(f"job {job.after_id}: the {what} of runs in Slurm already; output in {job.after.parent}")
        elif job.job_id is None:
            print(f"{size}, not submitted: sbatch {shlex.quote(str(job.script))}")
            if job.after is not None and what != "report":
                print(f"its {what}: sbatch --dependency=afterany:JOB {shlex.quote(str(job.after))}")
        else:
            after = f", its {what} is job {job.after_id}" if job.after_id else ""
            print(f"job {job.job_id}: {size}{after}; output in {job.script.parent}")
    if num_waiting:
        print(f"{counted(num_waiting, 'run')} queued or running in Slurm already")
    if not jobs:
        print("nothing is left to be submitted")


def _has_report(plan: Plan) -> bool:
    """Whether it is of a paper's artefact, and not of an experiment of the user's."""
    return "/" in plan.name and plan.name not in files("experiment")


def _submit_one(
    plan: Plan, left: set[str], held_by: set[str], results: Path, options: SlurmConfig, follow_up: Sequence[str] | None
) -> Job:
    """Write the scripts of a plan's unfinished runs, submit them if that is wanted, and write the plan.

    Args:
        left: identities of the runs that no job holds.
        held_by: ids of the jobs that hold the others.
    """
    identities, size = [entry.config.identity for entry in plan.unique()], options.runs_per_task
    parts = [identities[first : first + size] for first in range(0, len(identities), size)]
    tasks = {index: part for index, part in enumerate(parts) if left.intersection(part)}  # with unfinished runs
    if options.submit and tasks:
        _check_size(max(tasks) + 1, len(identities))
    stored = plan_path(results, plan.stem)
    folder = _new_folder(stored.with_suffix(".slurm"))
    script, after = _write_scripts(plan, folder, stored.stem, tasks, results, options, follow_up)
    job_id = after_id = None
    if options.submit and tasks:
        job_id = _submit_first(script, tasks)
    if follow_up is None:
        plan.keep(results)
    if options.submit and after is not None:
        all_of_it = f"--dependency=afterany:{':'.join(sorted({*held_by, *filter(None, [job_id])}))}"
        after_id = _sbatch(after, all_of_it) if tasks else _submit_first(after, {}, all_of_it)
        # What cancels the array cancels what follows it.
        _write_job(folder, {**json.loads((folder / "job.json").read_text()), "next_id": after_id})
    return Job(script, len(tasks), len(left), job_id, after, after_id)


def _write_scripts(
    plan: Plan,
    folder: Path,
    name: str,
    tasks: Mapping[int, list[str]],
    results: Path,
    options: SlurmConfig,
    follow_up: Sequence[str] | None,
) -> tuple[Path, Path | None]:
    """The script of the array, and that of the job after it if there is one."""
    if own := os.pathsep.join(map(str, folders())):
        options = replace(options, setup=[f"export {VARIABLE}={shlex.quote(own)}", *options.setup])
    own_plan = plan.write_to(folder / "plan.json")  # another plan of this name may be written before the job runs
    here = shlex.quote(str(Path.cwd()))  # relative paths of data are meant from here
    logs = str(folder).replace("%", "%%")
    array = folder / "array.sbatch"
    text = array_script(
        name,
        shlex.quote(str(own_plan)),
        ranges(tasks, options.max_parallel),
        options,
        folder=here,
        program=shlex.join(program("run")),
        log=f"{logs}/%a.txt",
        results=shlex.quote(str(results)),
    )
    if tasks:
        array.write_text(text)
    if follow_up is not None:
        kind, words = "next", [*(word for word in follow_up if not word.startswith("results=")), f"results={results}"]
    elif _has_report(plan):
        kind, words = "report", ["report", plan.name, "--scale", plan.scale, "--results", str(results)]
    else:
        return array, None
    after = folder / f"{kind}.sbatch"
    command = shlex.join(program(*words))
    after.write_text(next_script(f"{name}-{kind}", command, options, folder=here, log=f"{logs}/{kind}.txt"))
    return array, after


def _submit_first(script: Path, tasks: Mapping[int, list[str]], *options: str) -> str:
    """Submit the script, and write job.json beside it; one that is refused leaves no files. Returns the job's id."""
    folder = script.parent
    try:
        job_id = _sbatch(script, *options)
    except ConfigError:
        shutil.rmtree(folder)
        with suppress(OSError):  # it holds other jobs
            folder.parent.rmdir()
        raise
    _write_job(folder, {"job_id": job_id, "submitted": time.time(), "tasks": tasks})
    return job_id


def _write_job(folder: Path, about: Mapping[str, Any]) -> None:
    write_file(folder / "job.json", json.dumps(about) + "\n")


def _new_folder(parent: Path) -> Path:
    """Create the folder with the next number."""
    parent.mkdir(parents=True, exist_ok=True)
    number = 1 + max((int(folder.name) for folder in parent.iterdir() if folder.name.isdigit()), default=0)
    while True:
        try:
            (parent / str(number)).mkdir()
            return parent / str(number)
        except FileExistsError:  # another process has just created it
            number += 1


def _check_size(num_indices: int, num_runs: int) -> None:
    """Refuse arrays that are too large: Slurm's own error does not say what is allowed."""
    config = _call(["scontrol", "show", "config"])
    words = next((line.split("=")[1] for line in config.splitlines() if line.startswith("MaxArraySize")), "")
    if words.strip().isdigit() and num_indices > int(words):
        raise ConfigError(
            f"launcher.runs_per_task must be at least {math.ceil(num_runs / int(words))}: this cluster allows arrays "
            f"of {int(words)} tasks, and the plan has {num_indices}"
        )


def _sbatch(script: Path, *options: str) -> str:
    """Submit; returns the job's id.

    The script's options are given again, as variables of the environment (SBATCH_PARTITION) override a script's.
    """
    own = options_of(script.read_text())
    return _call(["sbatch", "--parsable", *options, *own, str(script)]).strip().partition(";")[0]


def _call(command: Sequence[str]) -> str:
    """What it prints; Slurm's refusal is a fault of the options."""
    try:
        return jobs.call(command)
    except jobs.NoAnswer as error:
        raise ConfigError(str(error)) from None
