"""docs/records.md: its keys, columns and kinds are those of the code, and its examples run on a real record."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, made

from syncline.config import compose
from syncline.metrics import METRICS
from syncline.plan import Entry, Plan
from syncline.records import rows
from syncline.records.events import SCHEMA, read_events
from syncline.records.reference import write_runs
from syncline.records.rows import KINDS
from syncline.records.sources import FolderRecord
from syncline.records.store import read_metrics, read_summary

TEXT = (ROOT / "docs/records.md").read_text()
PARTS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
RUNS = {"server": ["strategy=dssp"], "collective": ["strategy=ds_sync"], "times alone": ["gradients=false"]}
# Of real processes and their replays.
ELSEWHERE = {"lower_is_better", "restart_s", "start_s", "clock_error_s", "parameters", "replay"}


def first_cells(part: str) -> set[str]:
    """The names in the first column of a part's tables."""
    rows = re.findall(r"^\| (`[^|]*) \|", PARTS[part], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    results = tmp_path_factory.mktemp("results")
    return [made(results, *words, "max_updates=3") for words in RUNS.values()]


def test_the_keys_of_the_summary_are_all_there_are(records: list[Path]) -> None:
    keys = {key for record in records for key in json.loads((record / "summary.json").read_text())}
    assert first_cells("summary.json") == keys | ELSEWHERE


def test_the_keys_of_an_evaluation_are_all_there_are(records: list[Path]) -> None:
    keys = {key for record in records[:2] for key in read_metrics(record)[0]}
    assert first_cells("metrics.jsonl") == keys
    told = set(re.findall(r"`(\w+)`", PARTS["metrics.jsonl"]))
    assert {metric for metrics in METRICS.values() for metric in metrics} <= told


def test_columns_and_kinds_of_events_are_all_there_are(records: list[Path]) -> None:
    columns, kinds = PARTS["events.arrow"].split("| kind | at")
    told = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", columns, re.MULTILINE))
    assert list(told) == SCHEMA.names
    for name, kind in told.items():
        real = str(SCHEMA.field(name).type)
        assert kind == ("dictionary of strings" if real.startswith("dictionary<values=string") else real)
    assert re.findall(r"^\| (\w+) \|", kinds, re.MULTILINE) == list(KINDS)
    assert f"| kind | at{kinds}".split("\n\n")[0] in (rows.__doc__ or "")
    assert read_events(records[0] / "events.arrow").schema.names == SCHEMA.names


def test_the_files_are_all_there_are(records: list[Path]) -> None:
    told = set(re.findall(r"`([\w.]+)`", TEXT.partition("## ")[0]))
    assert {path.name for record in records for path in record.iterdir()} <= told


def test_the_examples_run(records: list[Path], tmp_path: Path) -> None:
    results = records[0].parent
    entries = [Entry("row", (), compose([*words, "max_updates=3"])[0]) for words in list(RUNS.values())[:2]]
    plan = Plan("sweep", "", tuple(entries), {}).write(results)
    write_runs(tmp_path / "smoke", [FolderRecord(record) for record in records])
    names: dict[str, Any] = {}
    for example in EXAMPLES:
        own = example.replace("<identity>", records[0].name).replace("<plan>", plan.stem)
        exec(own.replace('"results', f'"{results}').replace('"reference/<scale>', f'"{tmp_path}/smoke'), names)
    summary = read_summary(records[0])
    assert names["final"] == summary["final"]["accuracy"]
    assert list(names["curve"].updates) == [row["updates"] for row in read_metrics(records[0])]
    applied = [row for row in read_events(records[0] / "events.arrow").to_pylist() if row["kind"] == "applied"]
    assert len(names["events"].query("kind == 'applied'")) == len(applied) == 3
    assert names["by_label"].loc["row", "count"] == 2
    assert list(names["evaluations"].updates) == list(names["curve"].updates)
    assert json.dumps({**names["summary"], "files": {}}) == json.dumps({**summary, "files": {}})
