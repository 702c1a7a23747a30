"""Do the tests find faults? Each mutation is put into a copy of the project, where the tier meant for it must fail.

python -m benchmarks.mutations                    all of them, in the files of the working tree
python -m benchmarks.mutations 3 17               these alone
python -m benchmarks.mutations --revision COMMIT  in the files of a commit

A mutation counts as found by a test that fails with it and passes without it. Of a tier (`make test` or `make
test-all`) the tests below the paths named with the mutation are run, until the first one fails.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from syncline.records.environment import cores

ROOT = Path(__file__).parent.parent
VENV = Path(sys.prefix)


@dataclass(frozen=True)
class Mutation:
    """One fault, as an edit of one file."""

    name: str  # what is wrong with it
    file: str
    before: str  # occurs once in the file
    after: str
    tier: Literal["test", "test-all"]  # target of the Makefile whose tests must find it
    tests: Sequence[str]  # paths

    def apply(self, folder: Path) -> None:
        """Edit the file of a copy. Raises ValueError where the text does not occur exactly once."""
        path = folder / self.file
        text = path.read_text()
        if (count := text.count(self.before)) != 1:
            raise ValueError(f"{self.file} must have {self.before!r} once for the mutation {self.name!r}, got {count}")
        path.write_text(text.replace(self.before, self.after))


MUTATIONS = []


def copied(revision: str | None, folder: Path) -> None:
    """A copy of the tracked files: as they are in the working tree, or in a commit."""
    folder.mkdir()
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    pack = ["git", "archive", revision] if revision else ["tar", "--create", "--null", "--files-from=-"]
    packed = subprocess.run(pack, cwd=ROOT, input=names, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract"], cwd=folder, input=packed, check=True)


def tested(folder: Path, tier: str, tests: Sequence[str]) -> tuple[int, str]:
    """Run these tests of a tier in a copy until the first failure.

    Returns:
        pytest's exit code, and the identifier of the test that failed, if any.
    """
    arguments = f"-x -n 0 -p no:cacheprovider {' '.join(tests)}"
    ready = VENV / ".ready"  # this environment serves all copies
    command = ["make", "--old-file", str(ready), tier, f"VENV={VENV}", f"ARGS={arguments}"]
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}:{folder}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    code = re.search(r"Error (\d+)", done.stderr)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return int(code[1]) if code else done.returncode, failed[1] if failed else ""


def found_by(mutation: Mutation, revision: str | None) -> str:
    """The test that finds a mutation; empty where none does.

    Raises:
        ValueError: the mutation cannot be applied, or the tests cannot be run.
    """
    with tempfile.TemporaryDirectory() as place:
        right, wrong = Path(place) / "right", Path(place) / "wrong"
        copied(revision, wrong)
        mutation.apply(wrong)
        code, test = tested(wrong, mutation.tier, mutation.tests)
        if code == 0:
            return ""
        if code != 1 or not test:
            raise ValueError(f"the tests for the mutation {mutation.name!r} ended with pytest's exit code {code}")
        copied(revision, right)
        code, failed = tested(right, mutation.tier, [f"'{test}'"])
        if code != 0:
            raise ValueError(f"{failed or test} fails without the mutation {mutation.name!r}, too")
        return test


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("numbers", nargs="*", type=int, help="of mutations; all if none is named")
    parser.add_argument("--revision", help="commit whose files are mutated (the working tree)")
    asked = parser.parse_args(arguments)
    chosen = [(number, each) for number, each in enumerate(MUTATIONS, 1) if number in (asked.numbers or [number])]

    def outcome(one: tuple[int, Mutation]) -> bool:
        number, mutation = one
        try:
            test = found_by(mutation, asked.revision)
        except ValueError as error:
            print(f"{number:3}  ERROR    {error}", flush=True)
            return False
        print(f"{number:3}  {'found' if test else 'MISSED':7}  make {mutation.tier}: {mutation.name}", flush=True)
        if test:
            print(f"              {test}", flush=True)
        return bool(test)

    with ThreadPoolExecutor(cores()) as pool:
        outcomes = list(pool.map(outcome, chosen))
    print(f"{sum(outcomes)} of {len(outcomes)} found")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
