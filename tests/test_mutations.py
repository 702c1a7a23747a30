"""The faults that `python -m benchmarks.mutations` puts into copies of the project."""

from benchmarks.mutations import MUTATIONS, ROOT


def test_each_fits_the_file_and_the_tests_that_it_names() -> None:
    counts = {mutation.name: (ROOT / mutation.file).read_text().count(mutation.before) for mutation in MUTATIONS}
    assert len(counts) == len(MUTATIONS), "names differ"
    assert [name for name, count in counts.items() if count != 1] == []
    assert [path for mutation in MUTATIONS for path in mutation.tests if not (ROOT / path).exists()] == []
