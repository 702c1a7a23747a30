"""States on disk: what is written is read back, complete or not at all."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from syncline.records.snapshots import complete, numbers, read_state, state_path, write_state
from syncline.records.store import RecordError
from tests.refusals import refusal

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
names = st.text("abcdefgh.0123456789", min_size=1, max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


def tensor_of(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 100).to(dtype)


def assert_equal(tensors: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == others[name].dtype
        assert torch.equal(tensor, others[name])


def line_of(path: Path) -> str:
    """The error that this file gives; it must be one line."""
    line = refusal(RecordError, read_state, path)
    assert line.startswith(str(path))
    assert "broken state" in line
    return line


SMALL = {"weights": torch.arange(5.0), "buffers": torch.empty(0)}


@given(
    st.dictionaries(names, st.tuples(shapes, st.sampled_from([torch.float32, torch.float64, torch.int64]))),
    st.dictionaries(st.text(max_size=8), plain, max_size=5),
    st.integers(0, 99),
)
def test_what_is_written_is_read_back(
    folder: Path, kinds: dict[str, tuple[tuple[int, ...], torch.dtype]], state: dict[str, Any], seed: int
) -> None:
    tensors = {name: tensor_of(shape, dtype, seed) for name, (shape, dtype) in kinds.items()}
    path = folder / "any-0.safetensors"
    write_state(path, tensors, state)
    found, found_state = read_state(path)
    assert_equal(found, tensors)
    assert found_state == state


def test_nan_and_infinity_are_read_back_in_every_bit(folder: Path) -> None:
    weights = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    write_state(folder / "odd-0.safetensors", {"weights": weights}, {"loss": float("inf")})
    tensors, state = read_state(folder / "odd-0.safetensors")
    assert torch.equal(tensors["weights"].view(torch.int32), weights.view(torch.int32))
    assert state == {"loss": float("inf")}


def test_the_folder_is_made_and_tensors_that_were_read_outlive_their_file(tmp_path: Path) -> None:
    path = state_path(tmp_path / "checkpoint", 2.0, 1)
    assert path == tmp_path / "checkpoint" / "2.0-1.safetensors"
    write_state(path, SMALL, {})
    assert [entry.name for entry in (tmp_path / "checkpoint").iterdir()] == ["2.0-1.safetensors"]
    tensors, _ = read_state(path)
    tensors["weights"].mul_(2)
    path.unlink()
    assert_equal(tensors, {"weights": 2 * torch.arange(5.0), "buffers": torch.empty(0)})


# Complete, or absent.


def test_a_state_that_cannot_be_written_leaves_the_old_one_and_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed half-way through the file."""
    write_state(state_path(tmp_path, 1.0, 0), SMALL, {"updates": 1})

    def half(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        Path(path).write_bytes(b"half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("safetensors.torch.save_file", half)
        for number in (1.0, 2.0):
            with pytest.raises(KeyboardInterrupt):
                write_state(state_path(tmp_path, number, 0), SMALL, {"updates": 2})
    assert numbers(tmp_path, 0) == [1.0]
    assert complete(tmp_path, 1) == [1.0]
    assert read_state(state_path(tmp_path, 1.0, 0))[1] == {"updates": 1}
    write_state(state_path(tmp_path, 2.0, 0), SMALL, {"updates": 2})
    assert read_state(state_path(tmp_path, 2.0, 0))[1] == {"updates": 2}
    names = sorted(entry.name for entry in tmp_path.iterdir())
    assert names == ["1.0-0.draft", "1.0-0.safetensors", "2.0-0.safetensors"]


def test_what_keeps_a_state_from_being_written_is_an_os_error(tmp_path: Path) -> None:
    path = state_path(tmp_path, 1.0, 0)
    path.with_suffix(".draft").mkdir()  # as good as a full disk
    assert re.search(r"Is a directory: .*1\.0-0\.safetensors", refusal(OSError, write_state, path, SMALL, {}))
    assert not path.exists()
    with pytest.raises(OSError, match="No such file"):
        write_state(tmp_path / "no" / "folder" / "1.0-0.safetensors", SMALL, {})


def test_a_state_that_is_not_plain_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_state(state_path(tmp_path, 1.0, 0), SMALL, {"clock": object()})
    assert list(tmp_path.iterdir()) == []


# Broken files.


def test_a_file_cut_off_anywhere_is_refused_in_one_line(tmp_path: Path) -> None:
    path, cut = tmp_path / "whole", tmp_path / "cut"
    write_state(path, SMALL, {"updates": 3, "waiting": [1, 2]})
    content = path.read_bytes()
    for size in {*range(0, len(content), 7), len(content) - 1}:
        cut.write_bytes(content[:size])
        line_of(cut)
    cut.write_bytes(content)
    assert_equal(read_state(cut)[0], SMALL)


def error_of(path: Path) -> str | None:
    try:
        read_state(path)
    except RecordError as error:
        return str(error)
    return None


@scaled(60)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), min_size=1, max_size=4))
def test_a_file_with_other_bytes_is_read_or_refused_in_one_line(folder: Path, flips: list[tuple[int, int]]) -> None:
    write_state(folder / "1.0-9.safetensors", SMALL, {"updates": 3, "waiting": [[1, 2.5], {"a": None}]})
    content = bytearray((folder / "1.0-9.safetensors").read_bytes())
    for at, flip in flips:
        content[at % len(content)] ^= flip
    path = folder / "flipped"
    path.write_bytes(content)
    line = error_of(path)
    assert line is None or (line.startswith(str(path)) and "\n" not in line)


def test_what_is_no_state_is_refused_in_one_line(tmp_path: Path) -> None:
    """Other bytes, files of other programs, nothing, a folder."""
    from safetensors.torch import save_file

    path = tmp_path / "1.0-0.safetensors"
    assert "FileNotFoundError" in line_of(path)
    line_of(tmp_path)
    for content in (b"", b"hello\nworld\n", b"\x00" * 100, b"\xff" * 100):
        path.write_bytes(content)
        line_of(path)
    for metadata in (None, {"format": "pt"}, {"state": "{"}):
        save_file({"a": torch.zeros(2)}, path, metadata=metadata)
        line_of(path)


# Existing states.


@given(st.lists(st.sets(st.integers(0, 40).map(lambda half: half / 2), max_size=6), min_size=1, max_size=3))
def test_the_complete_states_are_those_that_every_shard_has(
    tmp_path_factory: pytest.TempPathFactory, written: list[set[float]]
) -> None:
    folder = tmp_path_factory.mktemp("some")
    for shard, own in enumerate(written):
        for number in own:
            state_path(folder, number, shard).touch()
            state_path(folder, number + 1, shard).with_suffix(".draft").touch()
    for shard, own in enumerate(written):
        assert numbers(folder, shard) == sorted(own)
    common = [number for number in written[0] if all(number in own for own in written)]
    assert complete(folder, len(written)) == sorted(common)


def test_numbers_ascend_as_numbers_and_shards_are_not_mixed_up(tmp_path: Path) -> None:
    for number, shard in ((10.0, 1), (9.0, 1), (0.5, 1), (2.5, 1), (3.0, 11), (4.0, 21)):
        state_path(tmp_path, number, shard).touch()
    assert numbers(tmp_path, 1) == [0.5, 2.5, 9.0, 10.0]
    assert numbers(tmp_path, 11) == [3.0]
    assert complete(tmp_path, 2) == [], "the first shard has none"
    assert numbers(tmp_path / "checkpoint", 0) == complete(tmp_path / "checkpoint", 2) == [], "nothing was written"


def test_looking_for_states_needs_no_torch() -> None:
    code = "import sys, syncline.records.snapshots; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
