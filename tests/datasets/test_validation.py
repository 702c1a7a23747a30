"""The validation part: a partition of the training samples, the same for every run; the test set is not touched."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.assembly.data import load_dataset
from syncline.config import compose
from syncline.datasets.registry import load
from syncline.datasets.validation import num_held_out, split

CPU = torch.device("cpu")


@given(st.integers(2, 500), st.floats(0.01, 0.99))
def test_each_sample_is_in_one_part(num: int, share: float) -> None:
    if num_held_out(num, share) >= num:
        with pytest.raises(ValueError, match="leaves none for training"):
            split(num, share)
        return
    rest, held = split(num, share)
    assert sorted([*rest, *held]) == list(range(num))
    assert len(held) == max(1, round(num * share))
    assert all((part == np.sort(part)).all() for part in (rest, held))
    assert all((a == b).all() for a, b in zip(split(num, share), (rest, held), strict=True))


def rows(batch: tuple[torch.Tensor, ...]) -> list[bytes]:
    """Each sample of a batch as bytes."""
    return [b"".join(tensor[row].numpy().tobytes() for tensor in batch) for row in range(len(batch[0]))]


@pytest.mark.parametrize(
    ("name", "task", "options"),
    [("digits", "classification", {}), ("ctr_synthetic", "ctr", {"train_size": 500, "test_size": 20})],
)
def test_training_and_validation_are_the_old_training_samples(name: str, task: str, options: dict[str, Any]) -> None:
    whole = load(name, **({"train_size": None, "test_size": None} | options))
    divided = whole.with_validation(0.25)
    assert divided.num_train == whole.num_train - round(0.25 * whole.num_train)
    source, before = divided.batch_source(CPU, task), whole.batch_source(CPU, task)
    trained = rows(source.take(np.arange(divided.num_train), None))
    held = [row for batch in source.test() for row in rows(batch)]
    assert sorted(trained + held) == sorted(rows(before.take(np.arange(whole.num_train), None)))


def test_the_last_windows_of_a_text_are_held_out() -> None:
    whole = load("pydoc_text", length=64, train_size=100, test_size=None)
    divided: Any = whole.with_validation(0.2)
    assert (divided.num_train, len(divided.test)) == (80, 20 * 64 + 1)
    take = whole.batch_source(CPU, "language").take(np.arange(80), None)
    assert all(
        (a == b).all()
        for a, b in zip(divided.batch_source(CPU, "language").take(np.arange(80), None), take, strict=True)
    )
    targets = np.concatenate([targets.numpy().ravel() for _, targets in divided.batch_source(CPU, "language").test()])
    held = whole.batch_source(CPU, "language").take(np.arange(80, 100), None)[1].numpy().ravel()
    assert sorted(targets[targets >= 0]) == sorted(held)


def test_questions_on_one_text_stay_together() -> None:
    whole: Any = load("qa_synthetic", train_size=200, test_size=10, max_length=128, stride=32, vocab="")
    divided: Any = whole.with_validation(0.25)
    parts = [{question.paragraph for question in part} for part in (divided.train_questions, divided.test_questions)]
    assert not parts[0] & parts[1]
    assert len(divided.train_questions) + len(divided.test_questions) == 200
    assert set(divided.train_questions) | set(divided.test_questions) == set(whole.train_questions)
    # The windows are those that the questions have in the whole set, in the order of the questions.
    for part, questions in ((divided.train, divided.train_questions), (divided.test, divided.test_questions)):
        numbers = [whole.train_questions.index(question) for question in questions]
        of_whole = np.flatnonzero(np.isin(whole.train.question_of, numbers))
        assert all(
            (a == b).all() for a, b in zip(part.rows(np.arange(len(part))), whole.train.rows(of_whole), strict=True)
        )
        assert (part.answers == whole.train.answers[of_whole]).all()
    source = divided.batch_source(CPU, "qa")
    perfect = torch.zeros(2, len(divided.test), 128)
    for row, (first, last) in enumerate(divided.test.answers):
        perfect[0, row, first] = perfect[1, row, last] = 9.0
    assert source.score(*perfect) == (1.0, 1.0)


def test_a_run_counts_its_epochs_by_the_samples_that_are_left() -> None:
    config, _ = compose(["dataset=digits", "dataset.validation=0.2"])
    assert config.dataset.num_train == load_dataset(config).num_train == 1437 - 287


def test_a_run_without_validation_keeps_its_identity() -> None:
    plain, _ = compose(["dataset=digits"])
    divided, _ = compose(["dataset=digits", "dataset.validation=0.2"])
    assert plain.as_dict()["dataset"].pop("validation") is None
    assert plain.identity != divided.identity


@pytest.mark.parametrize("share", ["0", "1", "-0.1", "1.5"])
def test_a_share_out_of_range_is_refused(share: str) -> None:
    with pytest.raises(ValueError, match=r"dataset\.validation must be in \(0, 1\) or null, got"):
        compose(["dataset=digits", f"dataset.validation={share}"])
