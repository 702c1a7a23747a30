"""What the commands of python -m syncline share: their parser, --results and --json, and how a record is named."""

import argparse
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from syncline.records.store import RecordError

HELP_WIDTH = 79


class Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"error: {message}\n")


class Commands:
    """The commands of a parser.

    A command's `run` takes the parsed arguments and returns the exit code.
    """

    def __init__(self, parser: Parser) -> None:
        self._parsers = parser.add_subparsers(required=True, metavar="command")

    def add(
        self, name: str, run: Callable[[argparse.Namespace], int], what: str, examples: str, has_json: bool = True
    ) -> argparse.ArgumentParser:
        parser = self._parsers.add_parser(
            name,
            help=what,
            description=textwrap.fill(f"{what[0].upper()}{what[1:]}.", HELP_WIDTH),
            epilog=examples,
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
        if folder.is_dir():
            return folder
    raise RecordError(f"no such record: neither {results / record} nor {record} is a folder")
