"""Other data is another run: the content of the files is part of the identity, and what is loaded is held to it."""

import json
import shutil
from pathlib import Path

import pytest
from commands import Command, made, one_error_line
from composing import line_of

from runners.one import resolved
from runners.planning import stored_plan, sweep_plan
from syncline import checksums
from syncline.assembly.data import load_dataset
from syncline.config import ConfigError, RunConfig, compose, from_plain
from syncline.datasets.errors import DataMissingError
from syncline.records.store import FINISHED, read_config, status
from tests.refusals import refusal

TEXT = b"the quick brown fox\n" * 400
WORDS = ("model=char_lstm", "model.hidden_size=8", "dataset=text", "dataset.path=book.txt", "dataset.length=16")
SHORT = (*WORDS, "strategy=asp", "cluster.workers=1", "epochs=null", "max_updates=2")


def text_run(root: Path, *more: str) -> RunConfig:
    return compose([*SHORT, f"dataset.root={root}", *more])[0]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "book.txt").write_bytes(TEXT)
    return tmp_path / "data"


def test_other_content_at_the_same_path_is_another_run_also_within_one_process(root: Path) -> None:
    before = text_run(root).identity
    (root / "book.txt").write_bytes(TEXT[::-1])
    assert text_run(root).identity != before
    (root / "book.txt").write_bytes(TEXT)
    assert text_run(root).identity == before


def test_texts_that_are_both_absent_are_two_runs(root: Path) -> None:
    absent = [text_run(root, f"dataset.path={name}") for name in ("none", "nobody")]
    assert {config.dataset.content for config in absent} == {"absent"}
    assert absent[0].identity != absent[1].identity


def test_a_run_of_times_alone_reads_no_data(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("gradients=false", "dataset.train_size=100")
    before = text_run(root, *words)
    (root / "book.txt").unlink()
    assert text_run(root, *words) == before
    assert before.dataset.content is None


def test_where_the_data_tell_the_networks_size_times_alone_depend_on_them(tmp_path: Path) -> None:
    words = ["model=mlp", "dataset=arrays", "dataset.path=mine.npz", f"dataset.root={tmp_path}"]
    words += ["dataset.train_size=100", "gradients=false"]
    assert compose(words)[0].dataset.content == "absent"
    (tmp_path / "mine.npz").write_text("1\n")
    assert compose(words)[0].dataset.content not in (None, "absent", "published")


# A fingerprint given by the user.


def test_a_requested_content_is_required(root: Path) -> None:
    config = text_run(root)
    content = config.dataset.content
    assert text_run(root, f"dataset.content={content}") == config
    line = line_of(*SHORT, f"dataset.root={root}", "dataset.content=0123456789abcdef")
    assert line == f"dataset.content must be {content}, as the data here have it, or null, got 0123456789abcdef"
    (root / "book.txt").unlink()
    assert text_run(root, f"dataset.content={content}").identity == config.identity, "where the data are not yet"


def test_data_that_cannot_be_read_are_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> tuple[str, bool]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(checksums, "_read", refuse)
    line = line_of(*SHORT, f"dataset.root={root}")
    assert line == f"dataset=text: {root / 'book.txt'} cannot be read (Permission denied)"


# Records.


def test_a_record_keeps_its_identity_without_the_data(root: Path, tmp_path: Path) -> None:
    folder = made(tmp_path, *SHORT, f"dataset.root={root}")
    shutil.rmtree(root)
    assert status(folder) == FINISHED
    assert from_plain(read_config(folder)).identity == folder.name
    words = ["runner=replay", f"from={folder.name}", f"results={tmp_path}"]
    replay = resolved(compose(words)[0], tmp_path)
    assert replay.dataset == from_plain(read_config(folder)).dataset

    plan, _ = sweep_plan(words)
    path = plan.write(tmp_path)
    for entry in (*plan.entries, *stored_plan(path, ":", tmp_path).entries):
        assert entry.config == replay
    with pytest.raises(ConfigError, match=r"must be of runner or tracker, got optimizer\.lr=9 model=mlp$"):
        compose([*words, "optimizer.lr=9", "tracker=none", "model=mlp"])
    with pytest.raises(ConfigError, match="from must be the identity of a finished run in"):
        sweep_plan(["runner=replay", "from=nope", f"results={tmp_path}"])


def test_a_record_of_before_there_were_fingerprints_keeps_its_identity(root: Path) -> None:
    plain = text_run(root).as_dict()
    del plain["dataset"]["content"]
    old = from_plain(plain)
    assert old.dataset.content is None
    assert old.identity != text_run(root).identity
    assert len(load_dataset(old).test) > 0, "nothing is known that its data could differ from"


def test_a_run_refuses_data_other_than_its_own(root: Path) -> None:
    config = text_run(root)
    assert load_dataset(config).num_train > 0
    (root / "book.txt").write_bytes(TEXT[::-1])
    line = refusal(ConfigError, load_dataset, config)
    assert line.startswith("dataset=text must have content ")
    for part in (config.dataset.content, text_run(root).dataset.content, "dataset.root=", "SYNCLINE_DATA="):
        assert part in line
    (root / "book.txt").unlink()
    with pytest.raises(DataMissingError):
        load_dataset(config)


# Plans.


def planned(root: Path, tmp_path: Path, command: Command) -> Path:
    words = ["-m", "seed=0,1", *SHORT, f"dataset.root={root}", f"results={tmp_path}", "runner=slurm"]
    assert command(*words, "runner.submit=false").code == 0
    (path,) = (tmp_path / "plans").glob("*.json")
    return path


def test_a_plan_with_other_data_is_one_line(root: Path, tmp_path: Path, command: Command) -> None:
    path = planned(root, tmp_path, command)
    before = json.loads(path.read_text())["runs"][0]
    (root / "book.txt").write_bytes(TEXT[::-1])
    line = one_error_line(command("--plan", str(path), f"results={tmp_path}"))
    there, here = before["content"], text_run(root).dataset.content
    assert line.startswith(f"error: {path}: {before['identity']} is of other data: text in {root} has content {here}, ")
    assert there in line


def test_a_plan_without_its_data_is_composed_and_shown(root: Path, tmp_path: Path, command: Command) -> None:
    (root / "book.txt").unlink()
    path = planned(root, tmp_path, command)
    assert [run["content"] for run in json.loads(path.read_text())["runs"]] == ["absent"] * 2
    said = command("status", "--runs", "--results", str(tmp_path))
    assert (said.code, said.out.count("\nleft ")) == (0, 2)
