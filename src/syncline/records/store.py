"""The records of runs, for readers: one folder a run, named by its identity.

    config.json        the whole config, and the format of the record
    durations-*.txt    the measured durations that were read from files
    environment.json   versions, hardware, commit; under `restarts` the same for each start from a checkpoint
    events.arrow       who computed, waited, pushed what and when (records/events.py)
    metrics.jsonl      an evaluation a line
    parameters-<shard>.safetensors   of a run of real processes: the weights and buffers at its end
    checkpoint/        what an unfinished run resumes from
    snapshots/, log/   of a run of real processes: states to be evaluated, and the output of each process
    log.txt            the error, if the run failed
    summary.json       written last, with the lengths and checksums of all but the last three: a record that has it is
                       finished; if one of them differs, damaged

Our own record is authoritative; a tracker only mirrors it. Readers need neither torch nor hydra.
"""

import errno
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from syncline.checksums import checksum, file_checksum

FORMAT = 2  # of the whole record; a reader refuses a newer one

WORKERS = "workers"  # the file of a run under way whose workers became more
ENDED = "ended.json"  # of a run of real processes that has ended, and of which snapshots are left to evaluate
STOPPED = "stopped"  # of a run of real processes that was asked to stop: what can be resumed

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)  # of an OSError: a file cannot be written

# Of a finished record: text is compared whenever the record is looked at, what may be large when it is read.
TEXTS = ("config.json", "environment.json", "metrics.jsonl", "durations-*.txt")
LARGE = ("events.arrow", "parameters-*.safetensors")

FINISHED, FAILED, UNFINISHED, ABSENT = "finished", "failed", "unfinished", "absent"
NO_EVENTS = "no events; runner.events=true rerun=true makes a run again with them, a replay has none"


class RecordError(ValueError):
    """A record that cannot be read or written; the message is one line with its path."""


def cannot_write(folder: Path, error: OSError) -> RecordError:
    """The error for a full disk, a missing permission and the like."""
    what = error.strerror or error
    return RecordError(f"cannot write the record {folder}: {what}; results=<folder> puts it elsewhere")


def is_write_error(folder: Path, error: OSError) -> bool:
    """Whether the record could not be written: it is of a disk, or of a file in the record or beside it by its name."""
    return error.errno in DISK or os.path.abspath(str(error.filename)).startswith(os.path.abspath(folder))


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file as a whole, in a folder that is made if need be.

    Readers see the old content or the new one, also where several processes write the file at once: each has a draft of
    its own, and the last one stays.

    Raises:
        OSError: it cannot be written; an existing file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{socket.gethostname()}.{os.getpid()}.draft")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def is_identity(name: str) -> bool:
    """Whether a folder of this name is the record of a run (config/run.py composes the names)."""
    return re.fullmatch(r".+-s\d+-[0-9a-f]{10}", name) is not None


def wanted_workers(folder: Path) -> int | None:
    """Workers that the run shall have, which may be more than it began with; None: as many as it began with."""
    try:
        return int((folder / WORKERS).read_text())
    except FileNotFoundError:
        return None


def want_workers(folder: Path, count: int) -> None:
    """Ask the coordinator of a run for so many workers."""
    write_file(folder / WORKERS, str(count))


def status(folder: Path) -> str:
    """One of FINISHED, FAILED, UNFINISHED, ABSENT; a damaged record has failed."""
    summary, damage = inspected(folder)
    if summary is not None:
        return FAILED if damage else FINISHED
    if (folder / "log.txt").exists():
        return FAILED
    return UNFINISHED if folder.exists() else ABSENT


def has_checkpoint(folder: Path) -> bool:
    """Whether the next start of this run may resume it."""
    return any(folder.glob("checkpoint/*"))


def made_in(folder: Path) -> Path:
    """Where the run of this record is made: a finished record stays until the next one is finished."""
    return folder.with_name(f"{folder.name}.rerun") if status(folder) == FINISHED else folder


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """Finish a record: write its summary, with the length and the checksum of each of its files, and of itself.

    Raises:
        OSError: it cannot be written.
    """
    content = {"format": FORMAT, "identity": _identity(folder), **summary}
    files = {"summary.json": _about(content)}
    for path in sorted(path for pattern in (*TEXTS, *LARGE) for path in folder.glob(pattern)):
        files[path.name] = [path.stat().st_size, file_checksum(path)]
    write_file(folder / "summary.json", json.dumps({**content, "files": files}, indent=2) + "\n")


def inspected(folder: str | os.PathLike[str]) -> tuple[dict[str, Any] | None, str]:
    """The summary of a finished record without the list of its files, and what is wrong with the record.

    This alone decides whether a record is damaged: it is not that of the folder's name, a file of it is missing, or is
    not as it was when the record was finished. Files in LARGE are compared by their lengths (see `check_file`).

    Returns:
        None: the record has no summary; empty words: nothing is wrong.
    """
    try:
        with open(f"{folder}/summary.json", "rb") as file:
            summary = json.loads(file.read())
        found = summary["format"]
        if found != FORMAT:
            return summary, ""
        files, identity = summary.pop("files"), summary["identity"]
        if identity != _identity(folder):
            return summary, _damaged(f"it is the record of {identity}")
        wrong = _changed(folder, summary, files)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return {}, _damaged(f"summary.json is broken ({type(error).__name__})")
    return summary, _damaged(wrong) if wrong else ""


def _identity(folder: str | os.PathLike[str]) -> str:
    """That of the folder's name, also while a rerun replaces the record (.rerun, .old)."""
    return os.path.basename(os.path.abspath(folder)).partition(".")[0]


def _damaged(what: str) -> str:
    return f"damaged record: {what}; retry or its own command makes it again"


def _about(summary: Mapping[str, Any]) -> list[Any]:
    """The length and the checksum of a summary, however it is indented."""
    text = json.dumps(summary).encode()
    return [len(text), checksum(text)]


def _changed(folder: str | os.PathLike[str], summary: Mapping[str, Any], files: Mapping[str, list[Any]]) -> str:
    """The file that is not as it was, in a few words; empty: all are."""
    for name, about in files.items():
        try:
            if name == "summary.json":
                is_same = _about(summary) == about
            elif name.endswith((".json", ".jsonl", ".txt")):
                with open(f"{folder}/{name}", "rb") as file:
                    is_same = checksum(file.read()) == about[1]
            else:
                is_same = os.path.getsize(f"{folder}/{name}") == about[0]
        except FileNotFoundError:
            return f"{name} is missing"
        if not is_same:
            return f"{name} is not as it was when the run finished"
    return ""


def check_file(path: Path) -> None:
    """Check a file of a record, if the record is finished and lists it, by its checksum.

    Raises:
        RecordError: it is not as it was when the run finished.
    """
    try:
        known = json.loads((path.parent / "summary.json").read_text()).get("files", {}).get(path.name)
        is_same = known is None or file_checksum(path) == known[1]
    except (OSError, ValueError, AttributeError):  # of no finished record, or of one that `inspected` names
        return
    if not is_same:
        raise RecordError(f"{path}: not as it was when the run finished; rerun=true makes it again")


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a finished run, without the list of its files.

    Raises:
        RecordError: absent, damaged, or of a newer format.
    """
    summary, damage = inspected(folder)
    if summary is None:
        raise RecordError(f"{folder}: no finished record; run it first")
    if damage:
        raise RecordError(f"{folder}: {damage}")
    check_format(summary["format"], folder / "summary.json")
    return summary


def check_format(found: object, path: Path) -> None:
    """Raises RecordError if a record in this file has another format than this version writes."""
    if found != FORMAT:
        raise RecordError(f"{path}: record format {found}, this version reads {FORMAT}; use the version that wrote it")


@contextmanager
def _named(path: Path) -> Iterator[Path]:
    """The file of a record that is read within the context. Raises RecordError: it is absent or broken."""
    try:
        yield path
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: broken record ({type(error).__name__})") from None


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a record, as plain types. Raises RecordError: absent or broken."""
    with _named(folder / "config.json") as path:
        config: dict[str, Any] = json.loads(path.read_text())
        del config["format"]
    return config


def read_run_config(folder: Path) -> dict[str, Any]:
    """The config of a record, with full paths to the record's own files, ready to be run.

    Raises:
        RecordError: absent or broken.
    """
    config = read_config(folder)
    for measured in measured_durations(config):
        measured["path"] = str(folder / measured["path"])
    return config


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The evaluations of a record, in order; a line cut off by a crash is left out.

    Raises:
        RecordError: absent, or broken before its last line.
    """
    with _named(folder / "metrics.jsonl") as path:
        lines = path.read_text().splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
    if not all(isinstance(row, dict) for row in rows):
        raise RecordError(f"{path}: broken record (a line is no mapping)")
    return rows


def read_environment(folder: Path) -> dict[str, Any]:
    """The environment in which a record was made (`records.environment.environment`).

    Raises:
        RecordError: absent or broken.
    """
    with _named(folder / "environment.json") as path:
        facts = json.loads(path.read_text())
    if not isinstance(facts, dict):
        raise RecordError(f"{path}: broken record (no mapping)")
    return facts


def read_log(folder: Path) -> str:
    """The error of a failed run, with its traceback; empty if there was none."""
    try:
        return (folder / "log.txt").read_text()
    except FileNotFoundError:
        return ""


def measured_durations(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The distributions in a config whose durations come from a file."""
    for value in config.values():
        if isinstance(value, dict):
            if value.get("name") == "trace" and value.get("path"):
                yield value
            yield from measured_durations(value)
