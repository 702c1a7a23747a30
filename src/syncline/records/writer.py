"""Writes the record of a run; see records/store.py."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.records.environment import environment
from syncline.records.events import EventLog
from syncline.records.store import (
    ENDED,
    FINISHED,
    FORMAT,
    STOPPED,
    WORKERS,
    cannot_write,
    is_write_error,
    made_in,
    measured_durations,
    read_environment,
    status,
    write_file,
    write_summary,
)


class RecordWriter:
    """The record of one run in progress.

    What an unfinished run left in the folder is removed first, unless the run resumes. A finished record is replaced
    only by the next finished one: until then the new one is written to a folder beside it.

    Args:
        folder: of the record.
        config: the whole config, in plain types.
        with_events: open events.arrow for writing.
        resumes: keep what is in the folder, except the evaluations.
        log: state of the event log at the checkpoint that the run resumes from (`EventLog.state_dict`).

    Raises:
        RecordError: no permission, no space, or no folder at this place; or the record there is broken.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        with_events: bool,
        resumes: bool = False,
        log: Mapping[str, Any] | None = None,
    ) -> None:
        self._place = folder
        self.folder = folder = made_in(folder)
        try:
            config, copies = _with_own_files(json.loads(json.dumps(config)))
            if folder.exists() and not resumes:
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=resumes)
            (folder / "log.txt").unlink(missing_ok=True)
            for name, measured in copies.items():
                (folder / name).write_bytes(measured)
            self._write("config.json", {"format": FORMAT, **config})
            self._environment = read_environment(folder) if resumes else environment()
            self.events = EventLog(folder / "events.arrow", **(log or {})) if with_events else None
            if resumes:
                self.restarted()
            else:
                self._write("environment.json", self._environment)
            self._metrics = (folder / "metrics.jsonl").open("w")
        except OSError as error:
            raise cannot_write(folder, error) from None

    def restarted(self) -> None:
        """Count a resumption of the run, with the environment in which it happens."""
        self._environment.setdefault("restarts", []).append(environment())
        self._write("environment.json", self._environment)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_file(self.folder / name, json.dumps(content, indent=2) + "\n")

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl; on disk when this returns."""
        self._metrics.write(json.dumps(row) + "\n")
        self._metrics.flush()

    def restart_evaluations(self) -> None:
        """Empty metrics.jsonl, as the run resumes from an earlier point."""
        self._metrics.seek(0)
        self._metrics.truncate()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Close everything, write summary.json, which finishes the record, then remove what only a resumption needs."""
        self.close()
        restarts = len(self._environment.get("restarts", ()))
        write_summary(self.folder, {**summary, "restarts": restarts})
        _clean(self.folder)
        if self.folder != self._place:
            old = self._place.with_name(f"{self._place.name}.old")
            if old.exists():
                shutil.rmtree(old)
            self._place.rename(old)  # atomic; a removal file by file may be killed in the middle
            self.folder = self.folder.rename(self._place)
            shutil.rmtree(old)

    def fail(self, trace: str) -> None:
        """Store the traceback: the record is then shown as failed."""
        self.close()
        (self.folder / "log.txt").write_text(trace)

    def close(self) -> None:
        """Flush everything to disk; without `finish` or `fail` the record stays unfinished."""
        events, self.events = self.events, None
        try:
            self._metrics.close()
        finally:
            if events is not None:
                events.close()

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            self.close()
        except OSError as at_close:
            if error is None:
                raise cannot_write(self.folder, at_close) from at_close
        if isinstance(error, OSError) and is_write_error(self._place, error):
            raise cannot_write(self.folder, error) from error


def is_only_copy(beside: Path, folder: Path) -> bool:
    """Whether this is a finished record beside its empty place: a rerun was killed while it replaced the old one."""
    return status(beside) == FINISHED and not folder.exists()


def recover(folder: Path) -> None:
    """Do what a process that was killed or interrupted when its run was finished has left to do; others do nothing.

    The record of a rerun that was to replace the old one, or else the old one, is put into its place. The caller holds
    the lock.
    """
    for beside in (folder.with_name(f"{folder.name}.{kind}") for kind in ("rerun", "old")):
        if is_only_copy(beside, folder):
            beside.rename(folder)
    if status(folder) == FINISHED:
        _clean(folder)


def _clean(folder: Path) -> None:
    """Remove from a finished record what only a resumption needs."""
    for path in [*folder.glob("events-*.arrow"), folder / WORKERS, folder / ENDED, folder / STOPPED]:
        path.unlink(missing_ok=True)
    for name in ("checkpoint", "snapshots"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _with_own_files(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A config that names the record's own copies of its files, and these copies: name -> content."""
    copies = {}
    for measured in measured_durations(config):
        name = f"durations-{measured['content'][:8]}.txt"
        copies[name] = Path(measured["path"]).read_bytes()
        measured["path"] = name
    return config, copies
