"""A sweep is the product of its words, in order."""

import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.config import compose, sweep


def test_a_sweep_is_the_product_in_order() -> None:
    assert sweep(["strategy=bsp,asp", "epochs=2", "seed=0,1"]) == [
        ["strategy=bsp", "epochs=2", "seed=0"],
        ["strategy=bsp", "epochs=2", "seed=1"],
        ["strategy=asp", "epochs=2", "seed=0"],
        ["strategy=asp", "epochs=2", "seed=1"],
    ]


def test_ranges_and_choices_are_swept_and_lists_are_not() -> None:
    assert sweep(["seed=range(0,3)"]) == [["seed=0"], ["seed=1"], ["seed=2"]]
    assert sweep(["seed=choice(4,9)"]) == [["seed=4"], ["seed=9"]]
    assert sweep(["optimizer.schedule.at_epochs=[1,2]"]) == [["optimizer.schedule.at_epochs=[1,2]"]]
    assert sweep([]) == [[]]


@scaled(30)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_sweep_has_as_many_different_runs_as_the_product_of_its_sizes(sizes: list[int]) -> None:
    keys = ["seed", "batch_size", "max_updates", "threads"][: len(sizes)]
    words = [f"{key}={','.join(map(str, range(1, size + 1)))}" for key, size in zip(keys, sizes, strict=True)]
    runs = sweep(words)
    expected = 1
    for size in sizes:
        expected *= size
    assert len({tuple(run) for run in runs}) == len(runs) == expected


def test_every_run_of_a_sweep_composes() -> None:
    configs = [compose(words)[0] for words in sweep(["strategy=bsp,ssp", "seed=3,4"])]
    seen = [(config.strategy.name, config.seed) for config in configs]
    assert seen == [("bsp", 3), ("bsp", 4), ("ssp", 3), ("ssp", 4)]


@pytest.mark.parametrize("override", ["seed=0,", "seed=[1", "seed=range(0,3,0)"])
def test_a_broken_sweep_is_refused_in_one_line(override: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        compose(sweep([override])[0])
    assert "\n" not in str(refused.value)
