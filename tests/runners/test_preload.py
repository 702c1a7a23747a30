"""What the process that runs are forked from imports for them."""

import importlib.util

from runners.plan import PRELOAD_FOR, _preload_for
from syncline.config import DATASETS, MODELS, compose
from syncline.plan import Entry


def entries(*words: str) -> list[Entry]:
    return [Entry("run", words, compose(words)[0])]


def test_only_what_is_learned_is_prepared_and_each_module_once() -> None:
    bert = ["model=bert_tiny", "dataset=qa_synthetic"]
    assert _preload_for(entries(*bert) + entries(*bert, "seed=1")) == ["runners.preload_bert"]
    assert _preload_for(entries(*bert, "gradients=false")) == []
    assert _preload_for(entries("model=lenet", "dataset=digits")) == []


def test_what_is_named_exists() -> None:
    assert set(PRELOAD_FOR) <= set(MODELS) | set(DATASETS)
    for modules in PRELOAD_FOR.values():
        assert all(importlib.util.find_spec(module) for module in modules)
