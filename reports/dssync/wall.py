"""Table 4: iterations and seconds to a target, the accuracy of BSP on average less one deviation under other seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reports.dssync.accuracy import BSP
from reports.dssync.text import SCORES, published_target, strategy_name, task_name, text
from reports.figures import Figure
from reports.measures import PERCENT, Target, fixed_target
from reports.records import Artefact, Run
from reports.statistics import Sample, Times
from reports.tables import DASH, Column, Table, Value
from reports.targets import over_all_targets, ratios_over_targets

DS_SYNC = "ds_sync"


@dataclass(frozen=True, slots=True)
class Race:
    """BSP and DS-Sync on one task with one number of workers, to a fixed target."""

    artefact: Artefact
    place: str  # "W4/cifar10": the key of the target
    num_workers: int
    task: str
    metric: str
    rows: Mapping[str, Sequence[Run]]

    @property
    def name(self) -> str:
        return f"W = {self.num_workers}, {task_name(self.task)}"

    @property
    def target_text(self) -> str:
        level = self.artefact.target(self.place)
        return f"{self.name} {DASH if level is None else f'{PERCENT * level:g} %'}"

    def target(self, over: str) -> Target:
        """The first evaluation that reaches it, over `time_s` or `updates`."""
        return fixed_target(self.artefact, lambda run: run.curve(self.metric, over), self.place)

    def reached(self, strategy: str, over: str) -> Sample:
        """Where a strategy's runs reach the target."""
        return self.artefact.sample(self.rows[strategy], self.target(over).time)

    @property
    def restricted_s(self) -> Times[str]:
        """Seconds to the target, as `restricted` takes them."""
        return self.target("time_s").restricted(self.artefact, self.rows)

    def gain(self, over: str) -> Sample:
        """BSP's over DS-Sync's, in the seeds in which both reach the target."""
        return self.reached(BSP, over) / self.reached(DS_SYNC, over)

    def published(self, strategy: str, key: str) -> float | None:
        """Table 4: `iterations` or `seconds`; None where it has none."""
        return published_target(self.task, self.num_workers, strategy, key)

    def published_gain(self, key: str) -> float | None:
        """Table 4: BSP's `iterations` or `seconds` over DS-Sync's."""
        whole, grouped = (self.published(strategy, key) for strategy in (BSP, DS_SYNC))
        return None if whole is None or grouped is None else whole / grouped


def races(artefact: Artefact) -> list[Race]:
    """One a task and number of workers where both were learned."""
    found = []
    for workers, task in artefact.by("workers", "task"):
        rows = artefact.by("strategy", workers=workers, task=task)
        compared = {strategy: rows[strategy] for strategy in (BSP, DS_SYNC) if strategy in rows}
        if len(compared) < 2 or not all(run.summary["best"] for runs in compared.values() for run in runs):
            continue
        first = compared[BSP][0]
        place, metric = f"{workers}/{task}", first.summary["metric"]
        found.append(Race(artefact, place, first.num_workers, task, metric, compared))
    return found


def over_targets(artefact: Artefact) -> Figure:
    """A panel a task and number of workers: DS-Sync's time over BSP's to every target."""
    panels = [
        ratios_over_targets(
            artefact,
            {strategy_name(DS_SYNC): race.rows[DS_SYNC]},
            race.rows[BSP],
            race.target("time_s"),
            SCORES[race.metric].removesuffix(", %"),
            f"{task_name(race.task)}, {race.num_workers} workers",
        )
        for race in races(artefact)
    ]
    return over_all_targets("DS-Sync, Table 4: time to a target over BSP's, by the target", panels, "BSP", columns=3)


Row = tuple[Race, str]  # of one of its strategies


def table4(artefact: Artefact) -> Table:
    """Two rows a task and number of workers."""

    def theirs(key: str) -> Callable[[Row], float | None]:
        return lambda row: row[0].published(row[1], key)

    def reached(over: str) -> Callable[[Row], Sample]:
        return lambda row: row[0].reached(row[1], over)

    def gain(value: Callable[[Race], Value]) -> Callable[[Row], Value]:
        """A ratio of the two strategies: it stands in DS-Sync's row."""
        return lambda row: value(row[0]) if row[1] == DS_SYNC else None

    columns: list[Column[Row]] = [
        Column("to the target", lambda row: f"{row[0].name}, {strategy_name(row[1])}"),
        Column("paper: iterations", theirs("iterations"), 0),
        Column("ours: iterations", reached("updates"), 0, show_n=True),
        Column("paper: s", theirs("seconds"), 0),
        Column("ours: virtual s", reached("time_s"), show_n=True),
        Column("paper: fewer iterations", gain(lambda race: race.published_gain("iterations")), 2),
        Column("ours: fewer iterations", gain(lambda race: race.gain("updates")), 2, show_n=True),
        Column("paper: speed-up", gain(lambda race: race.published_gain("seconds")), 2),
        Column("ours: speed-up", gain(lambda race: race.gain("time_s")), 2, show_n=True),
    ]
    rows = [(race, strategy) for race in races(artefact) for strategy in (BSP, DS_SYNC)]
    return Table.of_artefact(artefact, "DS-Sync, Table 4", rows, columns, notes(artefact))


def notes(artefact: Artefact) -> list[str]:
    """What a reader must know to compare."""
    found = races(artefact)
    there, targets = {race.task for race in found}, "; ".join(race.target_text for race in found)
    left_out = [task_name(task) for task in text()["tasks"] if task not in there]
    lines = [note.format(targets=targets) for note in text()["notes"]["table4"]]
    if left_out:
        lines.append(f"Not learned at this scale: {', '.join(left_out)}.")
    return lines
