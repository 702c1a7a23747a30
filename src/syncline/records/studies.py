"""A study on disk, results/studies/<stem>.json: written after each stage, derived from records alone.

kind          tune
name, scale   of the experiment; a sweep has no scale
plan          the stem of its plan, which has the trials of all stages so far
command       the arguments of `syncline` that go on with it
declaration   the study's own fields (studies/)
stages        those that are complete: name, num_trials, scores, decisions
present       the stage to be made: name, num_trials, the last ones of the plan; null at the end
answer        the study's result; null before its end
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from syncline.records.store import RecordError, cannot_write, write_file


@dataclass(frozen=True, slots=True)
class WrittenStudy:
    kind: str
    name: str
    scale: str
    plan: str
    command: list[str]
    declaration: dict[str, Any]
    stages: list[dict[str, Any]]
    present: dict[str, Any] | None
    answer: dict[str, Any] | None

    @property
    def is_of_experiment(self) -> bool:
        """Whether its name is an experiment's, `dssp/table1`, and no workload's, `mlp on digits, cluster laptop`."""
        return "/" in self.name

    @property
    def num_trials(self) -> int:
        """Trials of all stages so far."""
        present = self.present["num_trials"] if self.present else 0
        return int(sum(stage["num_trials"] for stage in self.stages) + present)


def study_path(results: Path, stem: str) -> Path:
    """The path of the study with this stem."""
    return results / "studies" / f"{stem}.json"


def find_study(results: Path, reference: Path, stem: str) -> Path | None:
    """The file of a study in the results, else in the reference; None if neither has it."""
    paths = (study_path(folder, stem) for folder in (results, reference))
    return next((path for path in paths if path.exists()), None)


def study_stems(results: Path) -> list[str]:
    """The stems of all studies, sorted."""
    return sorted(path.stem for path in (results / "studies").glob("*.json"))


def write_study(path: Path, study: WrittenStudy) -> None:
    """Write the study. Raises RecordError if it cannot be written."""
    try:
        write_file(path, json.dumps(asdict(study), indent=1, default=str) + "\n")  # text: a share of the length
    except OSError as error:
        raise cannot_write(path, error) from None


def read_study(path: Path) -> WrittenStudy:
    """Read a study. Raises RecordError if it cannot be read."""
    try:
        return WrittenStudy(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise RecordError(f"{path}: broken study ({type(error).__name__}); its command writes it again") from None
