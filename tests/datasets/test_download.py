"""Downloads from a real server: whole and with the right checksum, or nothing and one line."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from datasets.image_files import one_line
from web_server import serving

from syncline.datasets.download import fetch
from syncline.datasets.errors import DataMissingError

CONTENT = np.random.default_rng(0).bytes(3_000_000)
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_the_whole_file_arrives_in_a_folder_that_is_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep" / "folder" / "data.bin"
    with serving({"data.bin": CONTENT}) as site:
        assert fetch([f"{site.url}data.bin"], path, MD5, "toy") == path
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644
    out, err = capfd.readouterr()
    assert out == ""
    assert "data.bin: 100%" in err
    assert "3.00M/3.00M" in err


def test_an_existing_file_is_not_downloaded_again(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    with serving({"data.bin": CONTENT}) as site:
        for _ in range(2):
            fetch([f"{site.url}data.bin"], path, MD5, "toy")
    assert site.asked == ["data.bin"]
    path.chmod(0o600)
    fetch([f"{site.url}data.bin"], path, MD5, "toy")  # the server is down
    assert path.stat().st_mode & 0o777 == 0o600  # nor changed: it may belong to another user


def test_a_damaged_file_is_downloaded_again(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(CONTENT[:-1])
    with serving({"data.bin": CONTENT}) as site:
        fetch([f"{site.url}data.bin"], path, MD5, "toy")
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(tmp_path: Path) -> None:
    with serving({"data.bin": CONTENT + b"!"}) as site, pytest.raises(DataMissingError) as caught:
        fetch([f"{site.url}data.bin"], tmp_path / "data.bin", MD5, "toy")
    text = one_line(caught)
    for part in ("toy", str(tmp_path / "data.bin"), site.url, MD5.removeprefix("md5:")):
        assert part in text
    assert list(tmp_path.iterdir()) == []


def test_mirrors_are_tried_in_turn(tmp_path: Path) -> None:
    files = {"wrong.bin": b"something else", "half.bin": CONTENT, "right.bin": CONTENT, "never.bin": CONTENT}
    with serving(files, broken=frozenset({"half.bin"})) as site:
        names = ["absent.bin", "wrong.bin", "half.bin", "right.bin", "never.bin"]
        fetch([site.url + name for name in names], tmp_path / "data.bin", MD5, "toy")
    assert site.asked == names[:4]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT
    assert len(list(tmp_path.iterdir())) == 1


def test_no_network_names_every_mirror(tmp_path: Path) -> None:
    with serving({}) as gone:
        pass
    with serving({}) as site, pytest.raises(DataMissingError) as caught:
        fetch([f"{gone.url}data.bin", f"{site.url}data.bin"], tmp_path / "data.bin", MD5, "toy")
    text = one_line(caught)
    assert f"{gone.url}data.bin: " in text
    assert "refused" in text
    assert f"{site.url}data.bin: 404" in text


def test_a_folder_that_cannot_be_written_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataMissingError, match=r"File exists|Not a directory") as caught:
        fetch(["http://127.0.0.1:1/data.bin"], tmp_path / "file" / "data.bin", MD5, "toy")
    one_line(caught)


def test_of_many_concurrent_callers_one_downloads(tmp_path: Path) -> None:
    with serving({"data.bin": CONTENT}) as site:
        url, path = f"{site.url}data.bin", tmp_path / "data.bin"
        with ThreadPoolExecutor(3) as pool:  # the lock is a file's, so it holds for threads as for processes
            assert list(pool.map(lambda _: fetch([url], path, MD5, "toy"), range(3))) == [path] * 3
    assert site.asked == ["data.bin"]
    assert path.read_bytes() == CONTENT
