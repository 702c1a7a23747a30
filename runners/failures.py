"""Why a run of real processes ends early."""

import json
from pathlib import Path


class RunFailed(ValueError):
    """A process of the run failed; the message says which, and why."""


class Restart(Exception):
    """A part of the run is lost that the others need; the run can restart from its checkpoint."""


def first_failure(folder: Path) -> RunFailed | None:
    """The first error that a process of the run has written down."""
    notes = [json.loads(note.read_text()) for note in (folder / "log").glob("failure-*.json")]
    if not notes:
        return None
    first = min(notes, key=lambda note: float(note["at"]))
    trace = f"\n{first['trace']}" if first["trace"] else ""
    return RunFailed(f"{first['role']} {first['index']}: {first['error']}{trace}")
