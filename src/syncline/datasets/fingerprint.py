"""Fingerprints of the content of data sets: part of a run's identity, independent of the path of the files."""

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

    It covers the bytes of the files, not their names and paths. The software that decodes them (numpy, Pillow,
    torchvision) is not part of it: environment.json holds the versions, as for torch. For ImageNet, the names and sizes
    of the photographs count.

    Missing files with published checksums count as present. So a plan from before a download is the same plan after
    it, and a run without its data is still found in results/.

    The same data in another form (mnist.npz or the four idx files) have another fingerprint.

    Returns:
        `published`: the files have the checksums that were published for them, or will have them after a download,
        or no file is read. For files of other packages (scikit-learn's digits, matplotlib's fonts, Python's topics)
        the published checksums are those of the versions named in files.py.
        `absent`: a file without a published checksum is missing.
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
    """Empty if it is missing and has no published checksum."""
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
