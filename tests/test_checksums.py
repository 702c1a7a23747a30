"""Checksums of files: never outdated ones, and a large file is read once."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from syncline import checksums
from syncline.checksums import file_checksum, folder_checksum, joint_checksum

CONTENT = b"0123456789" * 1000


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The files that are read. Every file counts as large and long unchanged; the cache is in a folder of its own."""
    found: list[str] = []

    def read(path: str) -> tuple[str, bool]:
        found.append(path)
        return md5(Path(path).read_bytes()), True

    monkeypatch.setattr(checksums, "SETTLED_NS", -(10**12))
    monkeypatch.setattr(checksums, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(checksums, "_read", read)
    checksums._settled.cache_clear()
    return found


def test_a_file_is_read_once_in_a_process_and_once_by_all_processes(tmp_path: Path, reads: list[str]) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    assert {file_checksum(path) for _ in range(5)} == {md5(CONTENT)}
    checksums._settled.cache_clear()  # as in another process
    assert file_checksum(path) == md5(CONTENT)
    assert reads == [str(path)]


def test_a_broken_entry_of_the_cache_is_computed_again(tmp_path: Path, reads: list[str]) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    file_checksum(path)
    (kept,) = (tmp_path / "kept").iterdir()
    for broken in (b"", md5(CONTENT)[:9].encode(), b"\xff" * 32):
        kept.write_bytes(broken)
        checksums._settled.cache_clear()
        assert file_checksum(path) == md5(CONTENT)
        assert kept.read_text() == md5(CONTENT)


def test_without_a_cache_the_file_is_read_again(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    monkeypatch.setattr(checksums, "KEPT", path / "no folder")
    assert file_checksum(path) == md5(CONTENT)


def test_other_bytes_of_the_same_length_and_time_are_noticed(tmp_path: Path, reads: list[str]) -> None:
    """Only the time of status change tells them apart, which cannot be set."""
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    before = path.stat()
    assert file_checksum(path) == md5(CONTENT)
    time.sleep(0.02)  # more than a tick of the file system's clock
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert file_checksum(path) == md5(CONTENT[::-1])


def test_what_changed_a_moment_ago_is_read_again_each_time(tmp_path: Path) -> None:
    """Within one tick of the clock nothing but the bytes would differ."""
    path = tmp_path / "a"
    for number in range(50):
        content = b"%03d" % number
        path.write_bytes(content)
        assert file_checksum(path) == md5(content)


def test_a_folder_is_its_names_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"22")
    seen = [folder_checksum(tmp_path)]
    (tmp_path / ".hidden").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    assert folder_checksum(tmp_path) == seen[0]
    (tmp_path / "b").write_bytes(b"333")
    seen.append(folder_checksum(tmp_path))
    (tmp_path / "b").rename(tmp_path / "c")
    seen.append(folder_checksum(tmp_path))
    (tmp_path / "c").unlink()
    seen.append(folder_checksum(tmp_path))
    assert len(set(seen)) == 4


def test_a_joint_checksum_depends_on_all_of_them_and_their_order() -> None:
    seen = [joint_checksum(parts) for parts in (["a", "b"], ["b", "a"], ["a", "c"], ["a"], ["a", "b", "b"])]
    assert len(set(seen)) == len(seen)
    assert joint_checksum(["a"]) == "a"


def test_what_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_checksum(tmp_path / "none")
