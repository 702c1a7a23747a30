"""Imports what a user's config names (`_target_: package.module.name`), tells its faults, and hashes its source.

The user's code is every module outside Python's own folders and those of installed packages, except this project's.
"""

import ast
import io
import re
import sys
import sysconfig
import tokenize
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

from syncline.checksums import checksum, joint_checksum

DIGITS = 16  # of a hash
OURS = ("syncline", "runners", "reports", "slurm")


class TargetError(ValueError):
    """The user's code cannot be used; the message is one line."""


def imported(target: str) -> Any:
    """What `package.module.name` names; its module is imported.

    Raises:
        TargetError: there is no such module or name, or its import fails.
    """
    parts = target.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise TargetError(f"_target_ must be package.module.name, got {target!r}")
    found, depth = _module(target, parts)
    for place, part in enumerate(parts[depth:], depth):
        if not hasattr(found, part):
            raise TargetError(f"_target_={target}: {'.'.join(parts[:place])} has no {part}{_where(found)}")
        found = getattr(found, part)
    return found


def _module(target: str, parts: list[str]) -> tuple[Any, int]:
    """The longest part of the name that is a module, and how many of `parts` it takes."""
    for depth in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:depth])
        try:
            return import_module(name), depth
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):  # imported by the module
                raise TargetError(f"_target_={target}: {fault(error) or error}") from None
        except (Exception, SystemExit) as error:
            raise TargetError(f"_target_={target}: {fault(error) or _named(error)}") from None
    raise TargetError(f"_target_={target}: there is no module {parts[0]} here; it must lie in a folder of --config-dir")


def _where(module: Any) -> str:
    file = getattr(module, "__file__", None)
    return f" ({file})" if file else ""


def instantiated(value: Any) -> Any:
    """The value with each mapping in it that has a `_target_` replaced by what that returns for its other keys.

    Raises:
        TargetError: as `imported`.
    """
    if isinstance(value, list | tuple):
        return [instantiated(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    made = {key: instantiated(each) for key, each in value.items()}
    return imported(made.pop("_target_"))(**made) if "_target_" in made else made


def targets_in(value: Any) -> Iterator[str]:
    """Every `_target_` in it, at any depth."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from targets_in(each)
    elif isinstance(value, Mapping):
        if isinstance(value.get("_target_"), str):
            yield value["_target_"]
        yield from targets_in(list(value.values()))


def fault(error: BaseException) -> str | None:
    """`file:line: error`, for the last line of the user's code that the error passed.

    None: it passed none, or is an error of ours, which is one line itself.
    """
    if type(error).__module__.partition(".")[0] in OURS:
        return None
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}: {_named(error)}" if frames else None


def _named(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


@cache
def is_users(file: str) -> bool:
    """Whether it is a file of the user's code."""
    if not file.endswith(".py"):  # compiled, built in, or frozen
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in _not_the_users())


@cache
def _not_the_users() -> list[Path]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {path for path in sys.path if path.endswith(("site-packages", "dist-packages"))}
    specs = [find_spec(name) for name in OURS]
    ours = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]
    starter = Path(__file__).parents[2] / "run.py"
    return [*(Path(folder).resolve() for folder in folders), *(folder.resolve() for folder in ours), starter]


def source_hash(target: str) -> str:
    """16 hex digits over the sources of the target's module and of the user's modules that it imports.

    Comments, blank lines and space at the ends of lines do not count. An import counts that is written as a statement,
    wherever it stands. Empty for a target in an installed package, whose version is not part of a run's identity.

    Raises:
        TargetError: the module is not found, or cannot be read.
    """
    sources: dict[str, str] = {}
    waiting = [target.rpartition(".")[0]]
    while waiting:
        name = waiting.pop()
        file = _file(name)
        if name not in sources and file is not None:
            about = file.stat()
            sources[name], imports = _read(file, name, about.st_mtime_ns, about.st_size)
            waiting += imports
    parts = [f"{name} {checksum(text.encode())}" for name, text in sources.items()]
    return joint_checksum(["", *sorted(parts)])[:DIGITS] if parts else ""


@cache
def _read(file: Path, name: str, modified_ns: int, size: int) -> tuple[str, list[str]]:
    """The essence of a module's source, and the modules that it may import; read once until the file changes."""
    text = _text(file)
    return essence(text), list(_imports(ast.parse(text), name, is_package=file.name == "__init__.py"))


def _text(file: Path) -> str:
    """Of a Python file, in the encoding that it declares. Raises TargetError if it is in another one."""
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise TargetError(f"{file}: {error}") from None


def _file(name: str) -> Path | None:
    """The file of a module of the user's; None for other modules, and for what is no module."""
    top = name.partition(".")[0]
    if not top or top in OURS or top in sys.stdlib_module_names:
        return None
    file = None
    for each in (top, name):  # the search for a module within a package imports the package
        try:
            spec = find_spec(each)
        except (ImportError, AttributeError, ValueError):  # its parent is no package
            return None
        if spec is None or spec.origin is None or not is_users(spec.origin):
            return None
        file = Path(spec.origin)
    return file


def _imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """The modules that it may import, packages before what is in them; names of a module among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _prefixes(alias.name)
        elif isinstance(node, ast.ImportFrom):
            package = module if is_package else module.rpartition(".")[0]
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
            yield from _prefixes(base)
            for alias in node.names:
                yield f"{base}.{alias.name}"


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        yield ".".join(parts[:depth])


def essence(source: str) -> str:
    """A source text without comments, blank lines and space at the ends of lines."""
    lines = source.split("\n")  # as tokens count them: a form feed ends no line
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(re.sub(r"\s+$", "", line) for line in lines if line.strip())
