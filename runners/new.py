"""syncline new: writes the start of a strategy, a model, a data set or a cluster of one's own.

The files of starts/<kind>/ are copied; `mine` in their names and texts becomes the given name, `Mine` its class.
"""

import argparse
import keyword
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

from syncline.installation import shipped

STARTS = Path(__file__).parent / "starts"


def main(asked: argparse.Namespace) -> int:
    """Write the files, and name them.

    Raises:
        ValueError: the name cannot be used, or a file exists.
    """
    written = write(asked.kind, asked.name, asked.into)
    print("written:", *written)
    for path in written:
        if path.name.startswith("test_"):
            print(f"test it: pytest {shlex.quote(str(path))}")
    folder = shlex.quote(str(asked.into))
    print(f"use it:  syncline run --config-dir {folder} {asked.kind}={asked.name}")
    return 0


def write(kind: str, name: str, into: Path) -> list[Path]:
    """Write the files of a kind under this name; returns them.

    Raises:
        ValueError: the name cannot be used, or a file exists. Nothing is written then.
    """
    check_name(kind, name)
    texts = {into / renamed(str(path), name): renamed(text, name) for path, text in start_of(kind).items()}
    for path in texts:
        if path.exists():
            raise ValueError(f"{path} exists; nothing is written")
    if any(path.suffix == ".py" for path in texts) and find_spec(name) is not None:
        raise ValueError(f"NAME must not be that of a module that is installed, got {name}")
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(texts)


def check_name(kind: str, name: str) -> None:
    """Raises ValueError for what is no name of a module, or of a choice that ships."""
    if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(f"NAME must be a name of a Python module, such as my_{kind}, got {name}")
    if (shipped("conf") / kind / f"{name}.yaml").exists():
        raise ValueError(f"NAME must be a new one: {kind}={name} ships with syncline")


def start_of(kind: str) -> dict[Path, str]:
    """Path within the folder -> text."""
    folder = STARTS / kind
    found = sorted(path for path in folder.rglob("*mine.*") if path.suffix in (".py", ".yaml"))
    return {path.relative_to(folder): path.read_text() for path in found}


def renamed(text: str, name: str) -> str:
    """With this name in place of `mine`, and of `Mine` for classes."""
    camel = "".join(part.capitalize() for part in name.split("_"))
    text = re.sub("(?<![a-z])mine(?![a-z])", name, text)
    return re.sub("(?<![A-Za-z])Mine(?![a-z])", camel, text)
