"""The one door for downloads: whole files with the right checksum, or none."""

import os
import platform
import shlex
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from syncline.datasets.errors import DataMissingError

CHUNK = 1 << 18  # bytes between two steps of the progress bar


def fetch(urls: Sequence[str], path: Path, known_hash: str, what: str) -> Path:
    """The file at `path`, downloaded unless it is there and its checksum is right; progress is shown on stderr.

    What arrives goes to a temporary file beside it, which takes its name once the checksum is right and is removed
    otherwise. Of several processes that ask at once, one downloads and the others find the file.

    Args:
        urls: mirrors, >= 1, tried in turn.
        path: of the file; its folder is made.
        known_hash: as md5:... or sha256:...
        what: whose file it is, for the error message.

    Returns:
        `path`.

    Raises:
        DataMissingError: no mirror gave it whole.
    """
    # Here, since runs without a download need not wait for them (0.3 s).
    import pooch  # type: ignore[import-untyped]
    from tqdm import tqdm  # type: ignore[import-untyped]

    pooch.get_logger().setLevel("WARNING")  # the progress bar says enough

    def download(url: str, draft: str, registry: None) -> None:
        # Not packed once more on the way, or the checksum would be that of something else.
        headers = {"Accept-Encoding": "identity"}
        with tqdm(desc=path.name, total=1, unit="B", unit_scale=True) as bar:  # the total is known later
            pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK, headers=headers)(url, draft, registry)
        Path(draft).chmod(0o644)  # else it stays readable by its owner alone, as temporary files are

    faults = []
    for url in urls:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _alone(path.parent):
                pooch.retrieve(url, known_hash, path.name, path.parent, downloader=download)
            return path
        except (ValueError, OSError) as error:  # a wrong checksum; no network, a broken transfer, no room
            faults.append(f"{url}: {_one_line(error)}")
    raise DataMissingError(
        f"{what}: {path} could not be downloaded ({'; '.join(faults)}); try again, or put the file there yourself"
    )


def unpack(archive: Path, folder: Path, what: str) -> None:
    """The folder of that name out of a tar archive; it takes its name when it is complete, and is left alone if there.

    Raises:
        DataMissingError: it cannot be read, holds no such folder, or there is no room; or this Python is too old.
    """
    if not (folder.is_dir() or hasattr(tarfile, "data_filter")):
        raise DataMissingError(
            f"{what}: {archive} is unpacked safely by Python 3.11.4 or newer, this is {platform.python_version()}; "
            f"unpack it yourself: tar -xf {shlex.quote(str(archive))} -C {shlex.quote(str(folder.parent))}"
        )
    try:
        with (
            _alone(folder.parent),
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as draft,
            tarfile.open(archive) as tar,
        ):
            if not folder.is_dir():
                tar.extractall(draft, filter="data")  # nothing outside of the draft, no devices
                (Path(draft) / folder.name).rename(folder)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataMissingError(f"{what}: {archive} could not be unpacked to {folder} ({_one_line(error)})") from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, where the file system has one for folders (NFS has not, nor has Windows)."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # then several may download the same; the last to finish stays
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
