"""What Slurm knows of a plan: results/plans/<stem>.slurm/<n>/job.json, one of each submission."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Submission:
    """One array job."""

    job_id: str
    submitted: float  # seconds since 1970
    tasks: list[list[str]]  # identities of each task, in the order it makes them


def submissions(results: Path, stem: str) -> list[Submission]:
    """Of this plan, the oldest first."""
    return []


def waiting(submissions: Sequence[Submission]) -> dict[str, str]:
    """Identity -> "queued" or "running", by one call of squeue; empty without submissions."""
    return {}


def cancel(submissions: Sequence[Submission]) -> list[str]:
    """Cancel what is left of them; returns the jobs' ids."""
    return []
