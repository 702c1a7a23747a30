"""Downloads: complete files with the right checksum, or none."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from syncline.datasets.errors import DataMissingError

CHUNK = 1 << 18  # bytes between two steps of the progress bar


def fetch(urls: Sequence[str], path: Path, known_hash: str, what: str) -> Path:
    """Download a file to `path`, unless it is there with the right checksum; shows progress on stderr.

    It is written to a temporary file beside it, which is renamed once its checksum is verified, and else removed. Of
    several processes at the same time, one downloads and the others find the file.

    Args:
        urls: mirrors, >= 1, tried in turn.
        path: of the file; its folder is created.
        known_hash: as md5:... or sha256:...
        what: its description, for the error message.

    Returns:
        `path`.

    Raises:
        DataMissingError: no mirror delivered it completely.
    """
    # Imported here, as they take 0.3 s and most runs do not download.
    import pooch  # type: ignore[import-untyped]
    from tqdm import tqdm  # type: ignore[import-untyped]

    pooch.get_logger().setLevel("WARNING")  # there is a progress bar

    def download(url: str, draft: str, registry: None) -> None:
        # No compression in transfer, which would change the checksum.
        headers = {"Accept-Encoding": "identity"}
        with tqdm(desc=path.name, total=1, unit="B", unit_scale=True) as bar:  # the total is set later
            pooch.HTTPDownloader(progressbar=bar, chunk_size=CHUNK, headers=headers)(url, draft, registry)
        Path(draft).chmod(0o644)  # temporary files are readable by their owner only

    faults = []
    for url in urls:
        try:
            with alone(path.parent):
                pooch.retrieve(url, known_hash, path.name, path.parent, downloader=download)
            return path
        except (ValueError, OSError) as error:  # a wrong checksum; no network, a broken transfer, no room
            faults.append(f"{url}: {one_line(error)}")
    advice = "try again, or put the file there yourself"
    raise DataMissingError(f"{what}: {path} could not be downloaded ({'; '.join(faults)}); {advice}")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make the folder if it is missing, and hold its lock, where folders can be locked (not on NFS or Windows).

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # without a lock several may download the same; the last one wins
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def one_line(error: Exception) -> str:
    """The message of an error without its line breaks."""
    return " ".join(str(error).split())
