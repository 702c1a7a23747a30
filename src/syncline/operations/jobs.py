"""The Slurm jobs of a plan, as their submission recorded them: results/plans/<stem>.slurm/<number>/job.json."""

import getpass
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline.records.store import RecordError

TIMEOUT_S = 60.0  # of a busy controller
CAUSE = re.compile(r"^(slurmstepd|srun|error): |\bKilled\b")  # of a line that Slurm, the shell or a run ends with
RUNNING = ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT")  # of Slurm's states; in the others a task waits


class NoAnswer(RecordError):
    """Slurm is not installed here, or does not answer."""


@dataclass(frozen=True, slots=True)
class Submission:
    job_id: str
    submitted: float  # seconds since 1970
    tasks: dict[int, list[str]]  # array index -> identities of its runs, in order
    folder: Path  # of its script and its output
    next_id: str | None = None  # the job after it: its report, or what would submit more (of a study's stage)


def submissions(results: Path, stem: str) -> list[Submission]:
    """The jobs of a plan, the oldest first.

    Args:
        stem: of the plan's file.

    Raises:
        RecordError: one cannot be read.
    """
    jobs = []
    for path in sorted(
        (results / "plans" / f"{stem}.slurm").glob("*/job.json"), key=lambda path: int(path.parent.name)
    ):
        try:
            content = json.loads(path.read_text())
            tasks = {int(index): identities for index, identities in content["tasks"].items()}
            ids = content["job_id"], content.get("next_id")
            jobs.append(Submission(ids[0], content["submitted"], tasks, path.parent, ids[1]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{path}: broken ({type(error).__name__})") from None
    return jobs


def queue(jobs: Sequence[Submission]) -> dict[tuple[str, str], str]:
    """(job id, array index or N/A) -> state, of all that has not ended; calls squeue once if there are jobs.

    Raises:
        NoAnswer.
    """
    if not jobs:
        return {}
    listed = call(["squeue", "--noheader", "--array", _users(jobs), "--format=%F %K %T"])
    return {(job_id, index): state for job_id, index, state in map(str.split, listed.splitlines())}


def held(jobs: Iterable[Submission], queued: Mapping[tuple[str, str], str]) -> Iterator[tuple[str, Submission, str]]:
    """(identity, job, state) of the runs whose tasks have not ended; `queued` is from `queue`."""
    for job in jobs:
        for index, identities in job.tasks.items():
            if (state := queued.get((job.job_id, str(index)))) is not None:
                for identity in identities:
                    yield identity, job, state


def waiting(jobs: Iterable[Submission]) -> dict[str, str | Path]:
    """Identity -> "queued" or "running", or the output of the last task that held the run, if it has ended.

    Raises:
        NoAnswer.
    """
    jobs = list(jobs)
    states: dict[str, str | Path] = {
        identity: job.folder / f"{index}.txt"
        for job in jobs
        for index, identities in job.tasks.items()
        for identity in identities
    }
    for identity, _, state in held(jobs, queue(jobs)):
        if states.get(identity) != "running":
            states[identity] = "running" if state in RUNNING else "queued"
    return states


def cause(output: Path, since: float) -> str:
    """Why a task ended that left its run unfinished, by the last line of its output; empty: it was asked to.

    Args:
        since: seconds since 1970; another process may have made the run after an older output.
    """
    try:
        lines = output.read_text(errors="replace").split("\n") if output.stat().st_mtime >= since else []
    except OSError:
        return ""
    last = next((line for line in reversed(lines) if line.strip()), "")
    return last if CAUSE.search(last) and "CANCELLED" not in last else ""


def cancel(jobs: Sequence[Submission]) -> list[str]:
    """Cancel the jobs that have not ended, those after others first. Returns their ids. Raises NoAnswer."""
    if not jobs:
        return []
    listed = call(["squeue", "--noheader", _users(jobs), "--format=%F"])
    ids = [job.next_id for job in jobs if job.next_id is not None] + [job.job_id for job in jobs]
    alive = [job_id for job_id in dict.fromkeys(ids) if job_id in listed.split()]
    if alive:
        call(["scancel", *alive])
    return alive


def _users(jobs: Iterable[Submission]) -> str:
    """This user, and those who own the submissions of a folder that several share.

    The jobs themselves cannot be asked for: squeue fails if one has left its memory.
    """
    owners = {str(job.folder.stat().st_uid) for job in jobs}
    return f"--user={','.join([getpass.getuser(), *sorted(owners)])}"


def call(command: Sequence[str]) -> str:
    """What a command of Slurm's prints. Raises NoAnswer if it fails."""
    environment = dict(os.environ)
    if "SLURM_JOB_ID" in environment:  # variables of this job would count as options of a new one
        for key in [key for key in environment if key.startswith("SLURM_") and key != "SLURM_CONF"]:
            del environment[key]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S, env=environment
        ).stdout
    except FileNotFoundError:
        raise NoAnswer(f"{command[0]} is not on this machine's PATH: Slurm is not installed here") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{command[0]} did not answer within {TIMEOUT_S:g} s") from None
    except subprocess.CalledProcessError as error:
        raise NoAnswer(refusal(error)) from None


def refusal(error: subprocess.CalledProcessError) -> str:
    """Why a command of Slurm's failed, in one line."""
    name = error.cmd[0]
    lines = [
        line.removeprefix(f"{name}: ").removeprefix("error: ") for line in error.stderr.splitlines() if line.strip()
    ]
    fatal = [line.removeprefix("fatal: ") for line in lines if line.startswith("fatal: ")]  # the consequence
    words = "; ".join(fatal or lines) or f"exit code {error.returncode}"
    hint = "; is Slurm set up on this machine?" if "configuration source" in words else ""
    return f"{name}: {words}{hint}"
