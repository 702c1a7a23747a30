"""What a run leaves: one folder, named by its identity.

    config.yaml        the whole config, and the format of the record
    durations-*.txt    what an empirical distribution in it is drawn from, if that came from a file
    environment.json   versions, hardware, commit; in `restarts` those of each start that went on from a checkpoint
    events.arrow       who computed, waited, pushed what and when (records/events.py)
    metrics.jsonl      an evaluation a line
    parameters-<shard>.safetensors   of a run of real processes: the weights and buffers at its end
    checkpoint/        what an unfinished run goes on from
    snapshots/, log/   of a run of real processes: states to be evaluated, and what each process printed
    log.txt            what went wrong, if something did
    summary.json       written last: a record is finished if and only if it has one

Our own record is the truth; a tracker only mirrors it. Readers need neither torch nor hydra.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from syncline.records.events import EventLog

# libyaml's are several times as fast; they are not everywhere
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
FORMAT = 2  # of the whole record; a reader refuses a newer one

FINISHED, FAILED, UNFINISHED, ABSENT = "finished", "failed", "unfinished", "absent"


class RecordError(ValueError):
    """A record that cannot be read or written; the message is one line with its path."""


class RecordWriter:
    """The record of one run while it is being made.

    Whatever an unfinished run left in the folder is removed first, unless it is to be gone on with. A finished record
    is replaced only by the next finished one: until then the new one grows beside it.

    Args:
        folder: its place.
        config: the whole config, in plain types.
        with_events: open events.arrow for writing.
        go_on: leave what is there, but for the evaluations.
        log: where the event log stood at the checkpoint that the run goes on from, as `EventLog.state_dict` says it.

    Raises:
        RecordError: no permission, no space, or no folder at this place; or what is there is broken.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        with_events: bool,
        go_on: bool = False,
        log: Mapping[str, Any] | None = None,
    ) -> None:
        self._place = folder
        self.folder = folder = folder.with_name(f"{folder.name}.rerun") if status(folder) == FINISHED else folder
        try:
            config, copies = _with_own_files(_plain(config))
            if folder.exists() and not go_on:
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=go_on)
            (folder / "log.txt").unlink(missing_ok=True)
            for name, measured in copies.items():
                (folder / name).write_bytes(measured)
            content = yaml.dump({"format": FORMAT, **config}, Dumper=Dumper, sort_keys=False)
            (folder / "config.yaml").write_text(content)
            self._environment = read_environment(folder) if go_on else environment()
            self.events = EventLog(folder / "events.arrow", **(log or {})) if with_events else None
            if go_on:
                self.restarted()
            else:
                self._write("environment.json", self._environment)
            self._metrics = (folder / "metrics.jsonl").open("w")
        except OSError as error:
            raise cannot_write(folder, error) from None

    def restarted(self) -> None:
        """The run goes on from a checkpoint: that is counted, and where it does so written down."""
        self._environment.setdefault("restarts", []).append(environment())
        self._write("environment.json", self._environment)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """A file of the record, at once and whole."""
        draft = self.folder / f"{name}.draft"
        draft.write_text(json.dumps(content, indent=2) + "\n")
        draft.replace(self.folder / name)

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """One line of metrics.jsonl; on disk when this returns."""
        self._metrics.write(json.dumps(row) + "\n")
        self._metrics.flush()

    def restart_evaluations(self) -> None:
        """Empty metrics.jsonl: the run goes on from an earlier point."""
        self._metrics.seek(0)
        self._metrics.truncate()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Close everything, then write summary.json: from now on the record is finished, and no checkpoint needed."""
        self.close()
        restarts = len(self._environment.get("restarts", ()))
        self._write("summary.json", {"format": FORMAT, **summary, "restarts": restarts})
        shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)
        if self.folder != self._place:
            old = self._place.with_name(f"{self._place.name}.old")
            if old.exists():
                shutil.rmtree(old)
            self._place.rename(old)  # whole, or there at all: what is removed file by file may be killed in the middle
            self.folder = self.folder.rename(self._place)
            shutil.rmtree(old)

    def fail(self, trace: str) -> None:
        """Keep the traceback: the record shows as failed."""
        self.close()
        (self.folder / "log.txt").write_text(trace)

    def close(self) -> None:
        """Bring everything to disk; without `finish` or `fail` the record stays unfinished."""
        events, self.events = self.events, None
        try:
            self._metrics.close()
        finally:
            if events is not None:
                events.close()

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except OSError as at_close:
            error = error or at_close
        if isinstance(error, OSError):
            raise cannot_write(self.folder, error) from error


def cannot_write(folder: Path, error: OSError) -> RecordError:
    """The one line for a full disk, a missing permission and their like."""
    return RecordError(
        f"cannot write the record {folder}: {error.strerror or error}; results=<folder> puts it elsewhere"
    )


def is_identity(name: str) -> bool:
    """Whether a folder of this name is a run's record (config/run.py makes the names)."""
    return re.fullmatch(r".+-s\d+-[0-9a-f]{10}", name) is not None


def status(folder: Path) -> str:
    """One of FINISHED, FAILED, UNFINISHED, ABSENT."""
    if (folder / "summary.json").exists():
        return FINISHED
    if (folder / "log.txt").exists():
        return FAILED
    return UNFINISHED if folder.exists() else ABSENT


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a finished run.

    Raises:
        RecordError: absent, broken, or of a newer format.
    """
    path = folder / "summary.json"
    try:
        summary = json.loads(path.read_text())
        found = summary["format"]
    except FileNotFoundError:
        raise RecordError(f"{folder}: no finished record; run it first") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path}: broken record ({type(error).__name__}); delete the folder or use rerun=true"
        ) from None
    if found != FORMAT:
        raise RecordError(f"{path}: record format {found}, this version reads {FORMAT}; use the version that wrote it")
    assert isinstance(summary, dict)
    return summary


def read_config(folder: Path) -> dict[str, Any]:
    """The config of a record, as plain types.

    Raises:
        RecordError: absent or broken.
    """
    try:
        config = yaml.load((folder / "config.yaml").read_text(), Loader)
        del config["format"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
        raise RecordError(f"{folder / 'config.yaml'}: broken record ({type(error).__name__})") from None
    assert isinstance(config, dict)
    return config


def read_run_config(folder: Path) -> dict[str, Any]:
    """The config of a record, with the full paths of the record's own files, so that its run can be made.

    Raises:
        RecordError: absent or broken.
    """
    config = read_config(folder)
    for measured in _measured(config):
        measured["path"] = str(folder / measured["path"])
    return config


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The evaluations of a record, in order; a line cut off by a crash is left out.

    Raises:
        RecordError: absent, or broken before its last line.
    """
    path = folder / "metrics.jsonl"
    try:
        lines = path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: broken record ({type(error).__name__})") from None


def read_environment(folder: Path) -> dict[str, Any]:
    """Where a record was made.

    Raises:
        RecordError: absent or broken.
    """
    path = folder / "environment.json"
    try:
        facts: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: broken record ({type(error).__name__})") from None
    return facts


def read_log(folder: Path) -> str:
    """What went wrong, with its traceback; empty if nothing did."""
    try:
        return (folder / "log.txt").read_text()
    except FileNotFoundError:
        return ""


def environment() -> dict[str, Any]:
    """Versions, hardware and commit of this process."""
    facts = {**_facts(), "command": sys.argv}
    torch = sys.modules.get("torch")  # not imported for this alone, and of no use while another thread imports it
    is_whole = torch is not None and not getattr(torch.__spec__, "_initializing", False)
    if torch is not None and is_whole and torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


@cache
def _facts() -> dict[str, Any]:
    """What stays the same while a process lives, and takes it 20 ms to find out."""
    packages = ("torch", "torchvision", "numpy", "scipy", "scikit-learn", "hydra-core", "pyarrow")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": cores(),
        "packages": {name: metadata.version(name) for name in packages if _is_installed(name)},
        "commit": _commit(),
    }


def cores() -> int:
    """That this process may use; all of the machine's where the system does not tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _with_own_files(config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A config whose files are those of its record, and these files."""
    copies = {}
    for measured in _measured(config):
        name = f"durations-{measured['content'][:8]}.txt"
        copies[name] = Path(measured["path"]).read_bytes()
        measured["path"] = name
    return config, copies


def _measured(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The empirical distributions in a config that are drawn from a file."""
    for value in config.values():
        if isinstance(value, dict):
            if value.get("name") == "empirical" and value.get("path"):
                yield value
            yield from _measured(value)


def _plain(value: Any) -> Any:
    """Tuples become lists, for YAML."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list | tuple) else value
