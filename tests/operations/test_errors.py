"""Every mistake in the words of an operation is one line: what was given, and what there is."""

from pathlib import Path

import pytest
from operations.planned import identity_of, write_plan

from runners.commands import main

NO_RECORD = "no such record: neither RESULTS/{0} nor {0} is the folder of one"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("compare ONE", "compare needs two records, or --reference; got 1 name"),
        ("compare ONE none", NO_RECORD.format("none")),
        ("compare --reference --folder none", "nothing to compare: no plan of "),
        ("compare --reference paper-table-smoke --folder none", "paper-table-smoke: not in none; syncline"),
        ("compare --reference nothing", "no plan 'nothing'"),
        ("reference add", "reference add needs the names of plans, or all"),
        ("reference add sweep", "RESULTS/plans/sweep-1.json: a sweep; the reference holds the experiments of a scale"),
        ("reference add nothing", "no plan 'nothing'"),
        ("show none", NO_RECORD.format("none")),
        ("show plans", NO_RECORD.format("plans")),
        ("status paper/tabel", "no plan 'paper/tabel'; there are paper-table-laptop, paper-table-smoke, sweep-1"),
        ("retry paper/table", "'paper/table' may be any of paper-table-laptop, paper-table-smoke; name one"),
        ("cancel nothing.json", "no plan 'nothing.json'; there are"),
    ],
)
def test_a_mistake_is_one_line(results: Path, capsys: pytest.CaptureFixture[str], words: str, line: str) -> None:
    write_plan(results, "paper-table-laptop", [0])
    write_plan(results, "sweep-1", [0], scale="")
    assert main([*words.replace("ONE", identity_of(0)).split(), "--results", str(results)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: {line.replace('RESULTS', str(results))}")
