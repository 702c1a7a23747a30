"""The files of each data set: where they are searched, and the fingerprint of their content. Does not import torch."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from syncline.checksums import file_checksum, folder_checksum, joint_checksum
from syncline.datasets.errors import DataMissingError
from syncline.datasets.wordpiece import vocabulary_file

PUBLISHED, ABSENT = "published", "absent"  # fingerprints; any other has so many hex digits:
DIGITS = 16

CRITEO = ("criteo/train.txt", "train.txt")  # Criteo's own name
# Each part under its official name, then under those of copies and slices; the first that exists is taken.
SQUAD = {
    "train": ("train-v1.1.json", "squad-train-v1.1.json", "squad-train-v1.1-44-articles.json"),
    "dev": ("dev-v1.1.json", "squad-dev-v1.1.json"),
}
SQUAD_MD5 = {"train": "981b29407e0affa3b1b156f72073b945", "dev": "3e85deb501d4e538b6bc56f786231552"}
PTB_MD5 = {"ptb.train.txt": "f26c4b92c5fdc7b3f8c7cdcb991d8420", "ptb.test.txt": "8b80168b89c18661a38ef683c0dc3721"}
TEXT8_MD5 = "3bea1919949baf155f99411df5fada7e"
BILLION = "1-billion-word-language-modeling-benchmark-r13output"
BILLION_TRAIN = "training-monolingual.tokenized.shuffled"
BILLION_TEST = "heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050"
VOCABULARY_MD5 = "64800d5d8528ce344256daf115d4965e"  # of bert-base-uncased
DIGITS_MD5 = "9b335364a7bfd63947c7480a5bd51f2d"  # of scikit-learn 1.9
FONTS_MD5 = "94aadc5dd22992869e44d8bf6b1e73db"  # of FONTS, of matplotlib 3.11
TOPICS_MD5 = "5048db4e71856091b6689e4724e84d3f"  # of Python 3.11.7
FONTS = (  # from matplotlib's folder, never the system's
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a data set: one or several files."""

    name: str  # within the data set, independent of file names
    files: tuple[Path, ...]  # empty: not there
    md5: str = ""  # as published, of the files after a download; empty: not known


def parts(name: str, **options: Any) -> list[Part]:
    """The files that the data set of that name reads with these options of its loader; empty if it reads none.

    ImageNet's are not among them, being too many, nor those which the loader itself compares with published checksums
    (MNIST's idx files and torchvision's folders of CIFAR).
    """
    return _PARTS[name](**options)


def criteo_files(root: str, file: str | None) -> list[Path]:
    """The paths at which Criteo's text is searched, in order."""
    return [Path(root) / name for name in ((file,) if file else CRITEO)]


def squad_file(root: str, part: str, download: bool) -> Path | None:
    """The file of part train or dev; None if missing. Only the official name counts if it may be downloaded."""
    return _first(Path(root) / name for name in (SQUAD[part][:1] if download else SQUAD[part]))


def text_files(root: str, path: str) -> list[Path]:
    """The file, or all files of a folder and its subfolders in the order of their names, except hidden ones."""
    place = Path(root) / path
    if not place.is_dir():
        return [place] if place.is_file() else []
    inside = (file.relative_to(place) for file in place.rglob("*") if file.is_file())
    return [place / file for file in sorted(inside) if not any(part.startswith(".") for part in file.parts)]


def billion_files(root: str, path: str | None) -> tuple[list[Path], Path]:
    """All training files, and the test file, which may be missing."""
    folder = Path(root) / (path or BILLION)
    return sorted((folder / BILLION_TRAIN).glob("news.en-*")), folder / BILLION_TEST


def digits_file() -> Path:
    """Its path in scikit-learn, which is not imported for it: that takes as long as importing torch."""
    return _package("sklearn") / "datasets" / "data" / "digits.csv.gz"


def font_files() -> list[Path]:
    """Of matplotlib, which is not imported for it."""
    folder = _package("matplotlib") / "mpl-data" / "fonts" / "ttf"
    return [folder / f"{name}.ttf" for name in FONTS]


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None, f"{name} is installed with this package"
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def _first(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)


def _part(name: str, file: Path | None, md5: str = "") -> Part:
    return Part(name, (file,) if file is not None and file.is_file() else (), md5)


def _npz(name: str, root: str, **_: Any) -> list[Part]:
    path = Path(root) / f"{name}.npz"
    return [_part("npz", path)] if path.exists() else []


def _fonts(**_: Any) -> list[Part]:
    return [Part("fonts", tuple(font_files()), FONTS_MD5)]


def _squad(root: str, vocab: str, download: bool, **_: Any) -> list[Part]:
    asked = [_part(part, squad_file(root, part, download), md5) for part, md5 in SQUAD_MD5.items()]
    return [*asked, *_vocabulary(vocab, root)]


def _vocabulary(vocab: str, root: str) -> list[Part]:
    try:
        file = vocabulary_file(vocab, root)
    except DataMissingError:
        file = None
    return [_part("vocabulary", file, VOCABULARY_MD5 if vocab in ("", "minilm") else "")]


def _ptb(root: str, path: str | None, **_: Any) -> list[Part]:
    return [_part(name, Path(root) / (path or "") / name, md5) for name, md5 in PTB_MD5.items()]


def _billion(root: str, path: str | None, **_: Any) -> list[Part]:
    train, test = billion_files(root, path)
    return [Part("train", tuple(train)), _part("test", test)]


_PARTS: dict[str, Callable[..., list[Part]]] = {
    "arrays": lambda root, path, **_: [_part("arrays", Path(root, path))],
    "billion": _billion,
    "cifar10": partial(_npz, "cifar10"),
    "cifar100": partial(_npz, "cifar100"),
    "criteo": lambda root, file, **_: [_part("rows", _first(criteo_files(root, file)))],
    "ctr_synthetic": lambda **_: [],
    "digits": lambda **_: [_part("digits", digits_file(), DIGITS_MD5)],
    "glyphs10": _fonts,
    "glyphs100": _fonts,
    "mnist": partial(_npz, "mnist"),
    "mnist_digits": _fonts,
    "ptb": _ptb,
    "pydoc_text": lambda **_: [_part("text", _package("pydoc_data") / "topics.py", TOPICS_MD5)],
    "qa_synthetic": lambda vocab, **_: _vocabulary(vocab, ".") if vocab else [],
    "squad": _squad,
    "text": lambda root, path, **_: [Part("text", tuple(text_files(root, path)))],
    "tokens": lambda root, path, test_path, **_: [
        _part(name, Path(root, file)) for name, file in (("train", path), ("test", test_path))
    ],
    "text8": lambda root, path, **_: [_part("text", Path(root) / (path or "text8"), TEXT8_MD5)],
}


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
        the published checksums are those of the versions named here.
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


def fingerprint_of(files: Iterable[str]) -> str:
    """The fingerprint of these files, in this order; `published` without any, `absent` if one is missing.

    Raises:
        OSError: a file cannot be read.
    """
    paths = [Path(file).expanduser() for file in files]
    found = {str(place): file_checksum(path) if path.is_file() else "" for place, path in enumerate(paths)}
    return _joint(found) if found else PUBLISHED


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
