"""What the commands of python -m syncline share: parser, exit codes, --results, --json, names of plans and records."""

import argparse
import os
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from syncline.installation import command_name
from syncline.operations.streams import lose_text_alone
from syncline.records.plans import WrittenPlan, plan_path, read_plan
from syncline.records.store import RecordError

HELP_WIDTH = 79
INTERRUPTED = 130  # exit code, as shells have it

Read = TypeVar("Read")


def exit_code(command: Callable[[], int]) -> int:
    """What the command returns; bad input, an error of the system or Ctrl-C is one line, and an exit code."""
    lose_text_alone()
    try:
        check_working_directory()
        return command()
    except (ValueError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def one_line(error: ValueError | OSError) -> str:
    """What is printed of an error."""
    if not isinstance(error, OSError):
        return str(error)
    parts = (error.filename and f"{error.filename}:", error.strerror or error)
    return " ".join(str(part) for part in parts if part)


def check_working_directory() -> None:
    """Raises ValueError if it was removed: each relative path would be an error of its own."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise ValueError("the working directory was removed; change to another one") from None


class Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"error: {message}\n")


class Commands:
    """The commands of a parser.

    A command's `run` takes the parsed arguments and returns the exit code.
    """

    def __init__(self, parser: Parser) -> None:
        self._prog = parser.prog
        self._parsers = parser.add_subparsers(required=True, metavar="command")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._parsers.choices)

    def add(
        self, name: str, run: Callable[[argparse.Namespace], int], what: str, examples: str, has_json: bool = True
    ) -> argparse.ArgumentParser:
        parser = self._parsers.add_parser(
            name,
            help=what,
            description=textwrap.fill(f"{what[0].upper()}{what[1:]}.", HELP_WIDTH),
            epilog=examples.replace("python -m syncline", self._prog),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the records (results)")
        if has_json:
            parser.add_argument("--json", action="store_true", help="print JSON; docs/operations.md lists the keys")
        parser.set_defaults(run=run)
        return parser


def find_record(record: str, results: Path) -> Path:
    """The folder of a record, given as such or by its identity. Raises RecordError if it does not exist."""
    for folder in (results / record, Path(record)):
        if any((folder / name).is_file() for name in ("config.json", "summary.json")):
            return folder
    raise RecordError(f"no such record: neither {results / record} nor {record} is the folder of one")


def start_of(started: float, words: Sequence[str]) -> str:
    """When a plan was last started, and by which command, of these words, if its file holds it."""
    line = f"  {command_name('run')} {shlex.join(words)}" if words else ""
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(started))}{line}"


def stems(results: Path) -> list[str]:
    """The stems of all plan files, sorted."""
    return sorted(path.stem for path in (results / "plans").glob("*.json"))


def readable(read: Callable[[str], Read], stems: Iterable[str]) -> list[Read]:
    """What is read of each stem; what is broken is named in a line, and left out."""
    found = []
    for stem in stems:
        try:
            found.append(read(stem))
        except RecordError as error:
            print(f"left out: {error}", file=sys.stderr)
    return found


def all_plans(results: Path) -> list[WrittenPlan]:
    """All plans, sorted by their stems; a broken one is named in a line, and left out."""
    return readable(lambda stem: read_plan(plan_path(results, stem)), stems(results))


def find_plan(results: Path, name: str) -> WrittenPlan:
    """The plan of this name.

    Args:
        name: the experiment with or without its scale (dssp/table1, dssp-table1-laptop), or the plan's file.

    Raises:
        RecordError: no plan, or more than one, has this name, or it is broken.
    """
    if name.endswith(".json") and Path(name).is_file():
        return read_plan(Path(name).absolute())
    known = stems(results)
    if not known:
        raise RecordError(
            f"no plan in {results / 'plans'}; {command_name('run')} with -m or +experiment=<name> writes one"
        )
    stem = name.replace("/", "-")
    meant = [stem] if stem in known else [found for found in known if found.rpartition("-")[0] == stem]
    if not meant:
        raise RecordError(f"no plan {name!r}; there are {', '.join(known)}")
    if len(meant) > 1:
        raise RecordError(f"{name!r} may be any of {', '.join(meant)}; name one")
    return read_plan(plan_path(results, meant[0]))
