"""What a data set's files hold, as one word: other content is another run, the same content elsewhere is not."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.checksums import file_checksum, folder_checksum, joint_checksum
from syncline.datasets.files import Part, parts

PUBLISHED = "published"
ABSENT = "absent"
DIGITS = 16  # of a fingerprint


def fingerprint(options: Mapping[str, Any]) -> str:
    """The fingerprint of the files that a data set with these options (`name` and its loader's) reads.

    It is made of the files' bytes, whatever they are called and wherever they lie. What software makes of them (numpy,
    Pillow, torchvision) is no part of it: environment.json holds the versions, as of torch. Of ImageNet's photographs
    names and sizes count.

    Files that are not there, but whose checksums are published, count as if they were there. So a plan that was made
    before a download is still the same plan after it, and a run that does not find its data is still found in results/.

    The same data in another form (mnist.npz or the four idx files) have another fingerprint.

    Returns:
        `published`: the files have the checksums that were published for them, or will have them once they are fetched,
        or nothing is read. For what other packages bring (scikit-learn's digits, matplotlib's fonts, Python's topics)
        the published checksums are those of the versions named in files.py.
        `absent`: something is missing whose content cannot be foreseen.
        Else 16 hex digits.

    Raises:
        OSError: a file cannot be read.
    """
    if options["name"] == "imagenet":
        folder = Path(options["root"]) / "imagenet"
        return _joint({part: _photographs(folder / part) for part in ("train", "val")})
    asked = parts(**options)
    found = {part.name: _checksum(part) for part in asked}
    if found == {part.name: part.md5 for part in asked if part.md5}:
        return PUBLISHED
    return _joint(found)


def _checksum(part: Part) -> str:
    """Empty if it is not there, and not known."""
    return joint_checksum(map(file_checksum, part.files)) if part.files else part.md5


def _photographs(folder: Path) -> str:
    """Empty if there are none."""
    if not folder.is_dir():
        return ""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    return joint_checksum(["", *(f"{name} {folder_checksum(folder / name)}" for name in names)]) if names else ""


def _joint(found: Mapping[str, str]) -> str:
    if not all(found.values()):
        return ABSENT
    return joint_checksum(["", *(f"{name} {checksum}" for name, checksum in found.items())])[:DIGITS]
