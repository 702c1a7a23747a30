"""The user's config folders: each mirrors conf/ (DIR/model/mine.yaml is `model=mine`); Python modules lie beside."""

import os
from pathlib import Path

from syncline.checks import ConfigError
from syncline.installation import CONFIG_DIR

VARIABLE = "SYNCLINE_CONFIG_DIR"


def folders() -> tuple[Path, ...]:
    """The user's folders, in the order in which the environment's variable names them.

    Raises:
        ConfigError: one does not exist.
    """
    names = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    found = dict.fromkeys(Path(name).expanduser().absolute() for name in names)
    for folder in found:
        _check(folder)
    return tuple(found)


def words() -> list[str]:
    """The options of a command line that name the folders."""
    return [f"{CONFIG_DIR}={folder}" for folder in folders()]


def use(*folders: str) -> None:
    """Add folders for this process and its children. Raises ConfigError if one does not exist."""
    for folder in folders:
        path = Path(folder).expanduser().absolute()
        _check(path)
        if os.pathsep in str(path):
            raise ConfigError(f"{CONFIG_DIR} must name a folder without {os.pathsep} in its path, got {path}")
        os.environ[VARIABLE] = os.pathsep.join(filter(None, [os.environ.get(VARIABLE, ""), str(path)]))


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{CONFIG_DIR} and {VARIABLE} must name folders, got {folder}")


def files(group: str) -> dict[str, Path]:
    """Choice -> the user's file of it. Raises ConfigError: two folders have the same choice, or as `folders`."""
    found: dict[str, Path] = {}
    for folder in folders():
        for path in sorted((folder / group).glob("**/*.yaml" if group == "experiment" else "*.yaml")):
            choice = str(path.relative_to(folder / group).with_suffix(""))
            if choice in found:
                raise ConfigError(f"{group}={choice} is given twice: {found[choice]} and {path}")
            found[choice] = path
    return found
