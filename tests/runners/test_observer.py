"""What is left of a run of real processes when it goes back to a checkpoint."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from runners.observer import LiveObserver
from syncline.config import compose
from syncline.live.supervisor import Supervisor
from syncline.monitor import RunMonitor
from syncline.records.snapshots import state_path, write_state
from syncline.records.writer import RecordWriter

pytestmark = [pytest.mark.processes, pytest.mark.core]


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    with closing(Supervisor()) as made:
        yield made


@pytest.fixture
def observer(tmp_path: Path, supervisor: Supervisor) -> Iterator[LiveObserver]:
    """Of a run with two shards."""
    config, _ = compose(["runner=local", "strategy=asp", "cluster.shards=2", "model=softmax_regression"])
    monitor = RunMonitor(config, lambda row: None, lambda progress: None)
    with (
        RecordWriter(tmp_path / "record", config.as_dict(), with_events=False) as record,
        closing(LiveObserver(config, record, monitor, supervisor)) as made,
    ):
        (record.folder / "log").mkdir()
        yield made


def test_of_all_checkpoints_the_one_to_resume_from_is_left(observer: LiveObserver, tmp_path: Path) -> None:
    """Else a part of an older stop, or of a newer one that not all parts have written, could be taken for one of it."""
    folder = tmp_path / "record" / "checkpoint"
    for part, numbers in enumerate([(1.0, 2.0, 2.0001, 3.0), (1.0, 2.0, 2.0001)]):
        for number in numbers:
            write_state(state_path(folder, number, part), {}, {"totals": {"updates": 9}})
    observer.rewind(2.0001)
    assert {path.name for path in folder.iterdir()} == {"2.0001-0.safetensors", "2.0001-1.safetensors"}
    observer.rewind(None)
    assert not list(folder.iterdir())
