"""A race's items: the curves of those that were judged and their times to the target, the order, who would be first
on other clusters, real processes beside virtual time, and who was not judged."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any

from reports.exhibits import Exhibit
from reports.figures import Figure, Panel, Series, curve
from reports.tables import DASH, Column, Heading, Table, Value
from syncline.operations.tables import duration
from syncline.records.plans import plan_path
from syncline.records.reference import Reference
from syncline.records.sources import Record, ResultsFolder, Source
from syncline.records.store import RecordError
from syncline.records.studies import WrittenStudy
from syncline.studies.profile import MOST, ratios, score, staircase

Standing = Mapping[str, Any]  # of an entrant that was judged, as a study's file has it
Answered = tuple[WrittenStudy, Mapping[str, Any]]
OF_LENGTH = ("strategy", "epochs", "max_updates", "max_time_s", "eval_every_epochs")  # words that are not its training
OF_GRIDS = {"workers": ("cluster.workers",), "phases": ("scenario.slow", "cluster.jitter")}
JUDGED = "/judged"  # the end of the labels of such trials (studies/race.py)
UPDATE_NOTE = (
    "an update: how much longer it took than in virtual time; above 0 % this machine does not keep the cluster's pace"
)


def race_exhibit(study: WrittenStudy, path: Path) -> Exhibit:
    """The items of a race.

    Args:
        path: of the study, beside whose folder its records are.

    Raises:
        RecordError: it has no answer yet, or a record is missing.
    """
    answer = study.answer
    if answer is None:
        raise RecordError(f"race {path.stem} has no answer yet")
    figure = {"": race_figure(study, path)} if answer["standings"] else {}
    return {**figure, **race_tables(answer)}


def race_tables(answer: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of a race, by their suffix."""
    tables = {}
    if answer["standings"]:
        tables["order"] = order_table(answer)
    if answer["around"]:
        tables["around"] = around_table(answer)
    if answer["live"]:
        tables["live"] = live_table(answer)
    return {**tables, "left": left_table(answer)}


def together(studies: Sequence[WrittenStudy]) -> Exhibit:
    """All races of strategies alone side by side: who is first where, and each strategy's profile.

    Raises:
        RecordError: none of them is such a race with an answer.
    """
    answered = by_subject(studies)["races"]
    if not answered:
        raise RecordError("no race has its answer at this scale")
    found = ratios(cases([answer for _, answer in answered]))
    order = sorted(found, key=lambda strategy: -score(found[strategy]))
    series = [Series(each, *staircase(found[each]), colour=colour) for colour, each in enumerate(order)]
    panel = Panel("times the best time", "share of races and targets", series, y_range=(0.0, 1.05))
    notes = ["The soonest of a strategy's entrants counts. One that was not judged never reached the target."]
    figure = Figure("Performance profiles over all races", [panel], notes, columns=1)
    targets = [f"{answer['metric'].replace('_', ' ')} {answer['target']:g}" for _, answer in answered]
    own = [ratios(cases([{**answer, "targets": []}])) for _, answer in answered]
    rows: list[list[Any]] = [
        ["target", *targets, ""],
        ["verdict", *(answer["verdict"] for _, answer in answered), ""],
        ["not behind", *(", ".join(ahead(answer)) for _, answer in answered), ""],
    ]
    for strategy in order:
        times = (of_race.get(strategy, [math.nan])[0] for of_race in own)
        rows.append([strategy, *map(_finite, times), score(found[strategy])])
    words = told_apart([study for study, _ in answered])
    names = [f"{study.name} {own}".strip() for (study, _), own in zip(answered, words, strict=True)]
    columns_of_words = zip(*map(str.split, names), strict=False)
    alike = takewhile(lambda words: len({*words}) == 1, columns_of_words) if len(names) > 1 else ()
    shared = " ".join(words[0] for words in alike)  # "mlp on mnist, cluster"
    columns = (Heading(name.removeprefix(shared).strip() or DASH, 2) for name in names)
    headings = [Heading(shared or "race"), *columns, Heading("score", 2)]
    table = Table(
        "Who is first where",
        headings,
        rows,
        [
            f"Times the best time, of the soonest of a strategy's entrants; {DASH}: it was not judged, or missed the "
            f"target. Score: the area under its profile from 1 to {MOST:g} times the best time, over its width."
        ],
    )
    return {"": table, "profiles": figure}


def cases(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Strategy -> the mean seconds of the soonest of its entrants, of each race and target: see studies/profile.py.

    An entrant that reached the target with no seed never did; other misses count as the length of the race.
    """
    found = []
    for answer in answers:
        for number in range(1 + len(answer["targets"])):
            case: dict[str, float] = {}
            for each in answer["standings"]:
                seconds = each["further"][number - 1] if number else each["seconds"]
                if seconds < answer["length_s"]:
                    strategy = each["label"].split()[0]
                    case[strategy] = min(seconds, case.get(strategy, math.inf))
            found.append(case | {left["label"].split()[0]: math.inf for left in answer["left"]} | case)
    return found


def ahead(answer: Mapping[str, Any]) -> list[str]:
    """The entrants that are not behind, the soonest first."""
    return [each["label"] for each in answer["standings"] if each["first"] is not None]


def by_subject(studies: Sequence[WrittenStudy]) -> Mapping[str, list[Answered]]:
    """The races that have an answer, with it, by what is shown of them together.

    `rules`: their entrants differ in the rule of their updates. `pushes`: in local steps or compression. Else races of
    one name whose words state different clusters: `workers`: numbers of workers. `phases`: slowest workers, or noise of
    the gradients' times. `races`: all others.
    """
    found: dict[str, list[Answered]] = defaultdict(list)
    of_name: dict[str, list[Answered]] = defaultdict(list)
    for study in studies:
        if study.kind == "race" and study.answer is not None:
            standings = study.answer["standings"]
            if len({value_of(each, "update") for each in standings}) > 1:
                found["rules"].append((study, study.answer))
            elif len({_pushes(each) for each in standings}) > 1:
                found["pushes"].append((study, study.answer))
            else:
                of_name[study.name].append((study, study.answer))
    for alike in of_name.values():
        for subject, keys in OF_GRIDS.items():
            stated = [race for race in alike if any(_values(race, keys))]
            if len({_values(race, keys) for race in stated}) > 1:
                found[subject] += stated
                alike = [race for race in alike if race not in stated]
        found["races"] += alike
    return found


def told_apart(races: Sequence[WrittenStudy], shown: Collection[str] = ()) -> list[str]:
    """Of each race the words by which its training differs from that of others of its name; empty: it has none.

    Args:
        shown: keys of words that are told elsewhere.
    """
    left_out = {*OF_LENGTH, *shown}
    found = []
    for race in races:
        first, *others = [each["overrides"] for each in race.declaration["entrants"]]
        common = [word for word in first if all(word in other for other in others)]
        found.append(
            [word for word in common if not {(key := word.partition("=")[0]), key.partition(".")[0]} & left_out]
        )
    alike = [[own for other, own in zip(races, found, strict=True) if other.name == race.name] for race in races]
    return [
        " ".join(word for word in own if not all(word in other for other in others))
        for own, others in zip(found, alike, strict=True)
    ]


def _values(race: Answered, keys: Sequence[str]) -> tuple[str, ...]:
    """Of these keys in a race; empty: those of its cluster's file, which are not known here."""
    return tuple(value_of(each, key) for each in race[1]["standings"][:1] for key in keys)


def of_rules(studies: Sequence[WrittenStudy]) -> Exhibit:
    """Races whose entrants differ in the rule of their updates: how soon each is in each race, and at which rate.

    Raises:
        RecordError: there is none.
    """
    found = by_subject(studies)["rules"]
    if not found:
        raise RecordError("no race of update rules has its answer at this scale")
    cells: dict[tuple[str, str], dict[int, Mapping[str, Any]]] = {}
    for race, (_, answer) in enumerate(found):
        for each in answer["standings"]:
            rule = value_of(each, "update")
            strategy = " ".join(word for word in each["label"].split() if word != rule)
            cells.setdefault((rule, strategy), {})[race] = each
    order = sorted(cells, key=lambda row: sum(each["ratio"] for each in cells[row].values()) / len(cells[row]))

    def of_race(race: int, value: Callable[[Standing], Value]) -> Callable[[tuple[str, str]], Value]:
        return lambda row: value(cells[row][race]) if race in cells[row] else None

    columns: list[Column[tuple[str, str]]] = [Column("update", itemgetter(0)), Column("strategy", itemgetter(1))]
    for race, (study, answer) in enumerate(found):
        target = f"{study.name}: {answer['metric'].replace('_', ' ')} {answer['target']:g}"
        columns += [
            Column(f"{target}, rate", of_race(race, itemgetter("rate"))),
            Column("times the first", of_race(race, _ratio)),
            Column("staleness", of_race(race, itemgetter("staleness"))),
            Column("reached", of_race(race, _reached)),
        ]
    note = f"Intervals are of 95 %. {DASH}: it was not judged, since in tuning it was much later, or missed the target."
    return {"": Table.of("Which update rule", order, columns, [note])}


def of_pushes(studies: Sequence[WrittenStudy]) -> Exhibit:
    """Races whose entrants differ in local steps or compression, as a map: how soon each of them is in each race.

    Raises:
        RecordError: there is none in which the target was reached.
    """
    found = by_subject(studies)["pushes"]
    cells: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    steps: dict[int, set[int]] = {}  # by the race's place
    for race, (_, answer) in enumerate(found):
        reached = [each for each in answer["standings"] if each["seconds"] < answer["length_s"]]
        least = min((each["seconds"] for each in reached), default=math.nan)
        for each in reached:
            own, compress = _pushes(each)
            steps.setdefault(race, set()).add(own)
            cells.setdefault((_strategy(each), compress), {})[race, own] = each["seconds"] / least
    if not cells:
        raise RecordError("no race of local steps or compression has reached its target at this scale")
    columns = [(race, own) for race, ours in steps.items() for own in sorted(ours)]
    rows = [[*row, *map(of_row.get, columns)] for row, of_row in sorted(cells.items())]
    clusters = [study.name.rpartition(" ")[2] for study, _ in found]
    names = [
        cluster if clusters.count(cluster) == 1 else f"{study.name}, {answer['metric']} {answer['target']:g}"
        for cluster, (study, answer) in zip(clusters, found, strict=True)
    ]
    of_columns = (Heading(f"{names[race]}, H = {own}", 2) for race, own in columns)
    headings = [Heading("strategy"), Heading("compress"), *of_columns]
    notes = [
        f"Seconds to the target over those of the soonest in that race. {DASH}: it was not judged, since in tuning "
        "it was much later, or missed the target. H: local steps."
    ]
    return {"": Table("What to push where", headings, rows, notes)}


def race_figure(study: WrittenStudy, path: Path) -> Figure:
    """The metric against time, and the share of seeds that have reached the target."""
    answer = study.answer
    assert answer is not None
    metric = answer["metric"]
    runs = _judged(study, path)
    labels = [standing["label"] for standing in answer["standings"]]
    if missing := [label for label in labels if label not in runs]:
        raise RecordError(f"race {path.stem}: {missing[0]} has no finished run that judges; its command makes it again")
    curves = [
        curve(label, [_points(record, metric) for record in runs[label]], colour) for colour, label in enumerate(labels)
    ]
    target = Series("target", _ends(curves), [answer["target"]] * 2, published=True)
    reached = [Series("", *_staircase(each["times"]), colour=colour) for colour, each in enumerate(answer["standings"])]
    name = metric.replace("_", " ")
    panels = [
        Panel(
            "virtual time, s", f"{name} on test data", [*curves, target], "mean and range, to where the first run ends"
        ),
        Panel("virtual time, s", "share of seeds at the target", reached, "times to the target", y_range=(0.0, 1.05)),
    ]
    return Figure(f"Who reaches {name} {answer['target']:g} first?", panels, [answer["sentence"]], columns=2)


def order_table(answer: Mapping[str, Any]) -> Table:
    """A row each entrant that was judged."""
    columns: list[Column[Standing]] = [
        Column("entrant", itemgetter("label")),
        Column("learning rate", itemgetter("rate")),
        Column("s to the target", lambda each: _interval(each["seconds"], each["lower"], each["upper"], digits=4)),
        Column("times the first", _ratio),
        Column("first", lambda each: "behind" if each["first"] is None else f"{100.0 * each['first']:.0f} %"),
        Column("reached", _reached),
        Column("gradients thrown away, %", lambda each: 100.0 * each["wasted"]),
        Column("mean staleness, updates", itemgetter("staleness"), 2),
        Column("ms an update", lambda each: 1000.0 * each["seconds_per_update"]),
    ]

    def further(number: int) -> Callable[[Standing], float]:
        return lambda each: float(each["further"][number])

    columns += (Column(f"s to {target:g}", further(number), 3) for number, target in enumerate(answer["targets"]))
    notes = [
        answer["sentence"],
        "Intervals are of 95 %; seconds are over the entrant's seeds, ratios over those of both. A miss counts as the "
        f"length of the race, {answer['length_s']:.4g} s. Tests at level {answer['level']:.2g} find who is behind; "
        "`first` is the bootstrap probability of being so among the others.",
        *(f"{remark}." for remark in _remarks(answer["standings"])),
        f"The runs took {duration(answer['spent_s'])}.",
    ]
    title = f"The order at {answer['metric'].replace('_', ' ')} {answer['target']:g}"
    return Table.of(title, answer["standings"], columns, notes)


def _remarks(standings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is doubtful, each with the entrants that it is said of."""
    labels: dict[str, list[str]] = {}
    for standing in standings:
        for remark in filter(None, standing["remark"].split("; ")):
            labels.setdefault(remark, []).append(standing["label"])
    return [f"{', '.join(own)}: {remark}" for remark, own in labels.items()]


def around_table(answer: Mapping[str, Any]) -> Table:
    """A row a cluster: who is first there, and the others' seconds over its."""
    labels = [each["label"] for each in answer["standings"]]
    known = [label for label in labels if any(label in dict(there["seconds"]) for there in answer["around"])]
    rows = []
    for there in answer["around"]:
        seconds = dict(there["seconds"])
        first, least = there["seconds"][0]
        rows.append([there["name"], first, least, *(seconds.get(label, math.nan) / least for label in known)])
    headings = [Heading("cluster"), Heading("first"), Heading("its s", digits=3)]
    headings += [Heading(f"{label}, times that", digits=2) for label in known]
    note = (
        "Foreseen by times alone: seconds of an update there, by the updates that the target took here. It leaves out "
        "that other times also change how stale gradients are. Entrants with replicas, or whose K follows the losses, "
        "and those that missed the target once, are not foreseen."
    )
    return Table("Who would be first on other clusters", headings, rows, [note])


def live_table(answer: Mapping[str, Any]) -> Table:
    """A row a run of real processes."""

    def error(each: Mapping[str, Any]) -> float | None:
        foreseen, measured = each["foreseen"], each["measured"]
        return None if foreseen is None or measured is None else 100.0 * (foreseen / measured - 1.0)

    def update(each: Mapping[str, Any]) -> float | None:
        slower = each["update_time_ratio"]
        return None if slower is None else 100.0 * (slower - 1.0)

    columns: list[Column[Mapping[str, Any]]] = [
        Column("entrant", itemgetter("label")),
        Column("s foreseen", itemgetter("foreseen"), 3),
        Column("s measured", itemgetter("measured"), 3),
        Column("error, %", error),
        Column("an update, %", update),
    ]
    note = "One run each, with the seed of the run in virtual time; no value: it missed the target."
    return Table.of("As real processes", answer["live"], columns, [note, UPDATE_NOTE])


def left_table(answer: Mapping[str, Any]) -> Table:
    rows = [[each["label"], each["stage"], each["reason"]] for each in answer["left"]]
    headings = list(map(Heading, ("entrant", "stage", "reason")))
    return Table("Not judged", headings, rows or [[DASH, DASH, DASH]])


def _ratio(standing: Standing) -> str:
    return _interval(standing["ratio"], standing["ratio_lower"], standing["ratio_upper"])


def _reached(standing: Standing) -> str:
    return f"{standing['num_reached']} of {standing['num']}"


def _pushes(standing: Mapping[str, Any]) -> tuple[int, str]:
    """Local steps and compression of an entrant."""
    return int(value_of(standing, "local.steps") or 1), value_of(standing, "compress") or "none"


def value_of(standing: Mapping[str, Any], key: str) -> str:
    """Of a key among the overrides of an entrant; empty: it is not there."""
    values = {name: value for name, _, value in (word.partition("=") for word in standing["overrides"])}
    return str(values.get(key, ""))


def _strategy(standing: Mapping[str, Any]) -> str:
    """The entrant's name without them."""
    steps, compress = _pushes(standing)
    return " ".join(word for word in standing["label"].split() if word not in (f"steps={steps}", compress))


def _judged(study: WrittenStudy, path: Path) -> dict[str, list[Record]]:
    """The records of the runs that judge, by entrant."""
    folder = path.parents[1]
    is_results = plan_path(folder, study.plan).exists()
    source: Source = ResultsFolder(folder) if is_results else Reference(folder / study.scale)
    plan = source.plan(study.plan)
    if plan is None:
        raise RecordError(f"{path}: no plan {study.plan} beside it")
    found: dict[str, list[Record]] = {}
    for run in plan.runs:
        if run.label.endswith(JUDGED) and (record := source.record(run.identity)) is not None:
            found.setdefault(run.label.removesuffix(JUDGED), []).append(record)
    return found


def _points(record: Record, metric: str) -> tuple[list[float], list[float]]:
    rows = record.metrics()
    return [row["time_s"] for row in rows], [row[metric] for row in rows]


def _ends(curves: Sequence[Series]) -> list[float]:
    return [0.0, max(series.x[-1] for series in curves)]


def _staircase(times: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """The share of runs at the target by time, to the last of them; misses never come."""
    reached = sorted(time for time in times if time is not None)
    places, shares = [0.0], [0.0]
    for count, time in enumerate(reached, 1):
        places += [time, time]
        shares += [shares[-1], count / len(times)]
    return places, shares


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None


def _interval(middle: float, low: float, high: float, digits: int = 3) -> str:
    return f"{middle:.{digits}g} ({low:.{digits}g} to {high:.{digits}g})"
