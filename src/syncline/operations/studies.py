"""Studies in words: their state, what was measured in each stage, what was decided, the answer."""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syncline.installation import CONFIG_DIR
from syncline.operations.names import readable
from syncline.operations.states import run_states
from syncline.operations.tables import cell, columns, counted, row_lines, wrapped
from syncline.records.plans import plan_path, read_plan
from syncline.records.store import FINISHED
from syncline.records.studies import WrittenStudy, read_study, study_path, study_stems

LONG = ("rows", "entrants", "around")  # of a declaration: their words are those of the trials
LOST = "lost"  # a cell of runs that diverged or failed


def states(results: Path) -> list[dict[str, Any]]:
    """Of each study: its stage, how many runs of it are left, whether it has its answer.

    A broken one, or one whose plan is broken, is named in a line, and left out.
    """

    def state(stem: str) -> dict[str, Any]:
        study = read_study(study_path(results, stem))
        return {
            "study": stem,
            "stage": study.present["name"] if study.present else None,
            "trials": study.num_trials,
            "left": _num_left(results, study),
            "answered": study.answer is not None,
            "command": study.command,
        }

    return readable(state, study_stems(results))


def state_lines(found: Sequence[dict[str, Any]], width: int) -> Iterator[str]:
    """A line a study, and below it its command."""
    header = ("study", "stage", "trials", "left")
    rows = [(state["study"], state["stage"] or "answered", str(state["trials"]), str(state["left"])) for state in found]
    first, *lines = row_lines([header, *rows], right=(2, 3), width=width)
    yield first
    for line, state in zip(lines, found, strict=True):
        yield line
        yield from wrapped(f"syncline {shlex.join(state['command'])}", width, "  ")


def study_lines(stem: str, study: WrittenStudy, width: int) -> Iterator[str]:
    """The declaration, each stage with its scores and decisions, the answer."""
    yield f"{stem}: {study.kind} of {study.name} at scale {study.scale}"
    yield from wrapped(f"syncline {shlex.join(study.command)}", width, "  ")
    declared = {key: value for key, value in study.declaration.items() if key not in LONG}
    yield from ["", "declared", columns([(f"  {key}", cell(value)) for key, value in declared.items()])]
    for stage in study.stages:
        yield from ["", f"{stage['name']}: {counted(stage['num_trials'], 'trial')}"]
        if stage["scores"]:
            yield from _score_table(stage["scores"], width)
        for decision in stage["decisions"]:
            yield from wrapped(decision, width, "    ", first="  - ")
    if study.present:
        yield from ["", f"{study.present['name']}: {counted(study.present['num_trials'], 'trial')}, under way"]
    if study.answer:
        yield ""
        yield from answer_lines(study, width)


def answer_lines(study: WrittenStudy, width: int) -> Iterator[str]:
    """Of tuning the values of both arms, and the words that set them; of judging the verdicts; of a race who is first.

    JSON for a study of another kind than these.
    """
    assert study.answer is not None
    if study.kind == "judge":
        yield from _verdict_lines(study.name, study.answer, width)
        return
    if study.kind == "race":
        yield from _race_lines(study, study.answer, width)
        return
    if study.kind != "tune":
        yield json.dumps(study.answer, indent=1)
        return
    answer, choices = study.answer, study.answer["choices"]
    header = ("row", answer["key"], answer["metric"].replace("_", " ") or "score", "peak", "arm same", "trials")
    rows = [
        (
            choice["label"],
            " ".join(word.partition("=")[2] for word in choice["words"]) or "-",
            _score(choice["score"], choice["error"]),
            _peak(choice),
            _value(choice["same"]),
            str(answer["num_trials"]),
        )
        for choice in choices
    ]
    yield columns([header, *rows], range(1, len(header)), width)
    has_settings = bool(study.declaration["rows"][0]["settings"])
    peaks = "" if has_settings else ". Peak: of a parabola through it and its neighbours, with its standard error"
    yield from wrapped(
        f"{answer['key']}: {'those' if has_settings else 'the value'} with the best score; mean ± standard error over "
        f"the tuning seeds, on data held out from the training data{peaks}",
        width,
    )
    for stage in study.stages:
        for decision in stage["decisions"]:
            if decision.startswith(("the grid", "each row", "no more values")):
                yield from wrapped(f"{stage['name']}: {decision}", width, "  ")
    for choice in choices:
        if choice["remark"]:
            yield from wrapped(f"{choice['label']}: {choice['remark']}", width, "  ")
    if not has_settings and not any(choice["same"] for choice in choices):
        yield "no baseline is among the rows: there is no arm `same`"
    for target in answer["targets"]:
        metric = answer["metric"].replace("_", " ")
        yield f"target for times: {metric} {target['value']:.4g}, from {target['label']}'s {target['score']:.4g}"
    yield ""
    yield from _to_paste(study)


def _peak(choice: dict[str, Any]) -> str:
    """ "0.097 (÷× 1.2)": the peak of the parabola with its standard error."""
    if choice["peak"] is None:
        return "-"
    return f"{choice['peak']:.2g}" + ("" if choice["factor"] is None else f" (÷× {choice['factor']:.2g})")


def _verdict_lines(name: str, answer: dict[str, Any], width: int) -> Iterator[str]:
    """A line a claim, and below it its reason."""
    if not answer["claims"]:
        yield f"no claim rests on {name}; {counted(answer['num_seeds'], 'seed')}"
        return
    rows = [(found["claim"], found["verdict"], str(found["num_seeds"] or "-")) for found in answer["claims"]]
    header, *lines = row_lines([("claim", "verdict", "seeds"), *rows], right=(2,), width=width)
    yield header
    for line, found in zip(lines, answer["claims"], strict=True):
        yield line
        yield from wrapped(found["because"], width, "  ")


def _race_lines(study: WrittenStudy, answer: dict[str, Any], width: int) -> Iterator[str]:
    """The sentence, the command that runs the first one as real processes if none has run so, that of the tables."""
    yield from wrapped(answer["sentence"], width)
    own = [word for word in study.command if word.startswith((f"{CONFIG_DIR}=", "results="))]
    if answer["standings"] and not answer["live"]:
        words = [*own, *answer["standings"][0]["overrides"], *study.declaration["live"], "seed=0"]
        yield from ["", "the first one as real processes:"]
        yield from wrapped(f"syncline run {shlex.join(words)}", width, "  ")
    folders = [word.partition("=")[2] for word in own if word.startswith("results=")]
    where = "".join(f" --results {folder}" for folder in folders[-1:])
    yield from ["", "its tables and curves:", f"  syncline report study {study.plan}{where}"]


def _to_paste(study: WrittenStudy) -> Iterator[str]:
    """What sets the chosen values: a block of an experiment's file, or the words of each row."""
    assert study.answer is not None
    key = study.answer["key"]
    choices = [choice for choice in study.answer["choices"] if choice["value"] is not None]
    if study.is_of_experiment:
        own = ", ".join(f"{choice['label']}: [{', '.join(choice['words'])}]" for choice in choices)
        same = ", ".join(f"{part}: [{key}={value}]" for part, value in _same(study.answer["choices"]).items())
        arms = f"{{same: {{{same}}}, own: {{{own}}}}}"
        yield f"arms: {{{study.scale}: {arms}}}"
        return
    for choice in choices:
        yield shlex.join([*choice["overrides"], *choice["words"]])
    for value in dict.fromkeys(_value(choice["same"]) for choice in choices if choice["same"] is not None):
        yield f"arm same: {key}={value}"


def _same(choices: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Label, its first part, or `every` -> the value of the arm `same`: as few as say it for all rows."""
    values = {choice["label"]: _value(choice["same"]) for choice in choices if choice["same"] is not None}
    if len(set(values.values())) == 1 and len(values) == len(choices):
        return {"every": next(iter(values.values()))}
    groups: dict[str, set[str]] = {}
    for label, value in values.items():
        groups.setdefault(label.rpartition("/")[0], set()).add(value)
    if all(group and "/" not in group for group in groups):
        return {group: next(iter(own)) for group, own in groups.items()}
    return values


def _score_table(scores: Sequence[dict[str, Any]], width: int) -> Iterator[str]:
    """A row a line, a column a value of the key."""
    places = sorted({score["at"] for score in scores})
    labels = list(dict.fromkeys(score["label"] for score in scores))
    cells = {(score["label"], score["at"]): _score(score["mean"], score["error"]) for score in scores}
    rows = [(f"  {label}", *(cells.get((label, place), "") for place in places)) for label in labels]
    yield columns([("  row", *map(_value, places)), *rows], range(1, len(places) + 1), width)


def _score(mean: float | None, error: float | None) -> str:
    if mean is None:
        return LOST
    return f"{mean:.4g}" + ("" if error is None else f"±{error:.2g}")


def _value(number: float | None) -> str:
    return "-" if number is None else f"{number:.6g}"


def _num_left(results: Path, study: WrittenStudy) -> int:
    """Runs of the present stage, the last ones of the plan, that are not finished; its trials before they are there."""
    if study.present is None:
        return 0
    num_trials = int(study.present["num_trials"])
    try:
        runs = read_plan(plan_path(results, study.plan)).runs
    except FileNotFoundError:
        return num_trials
    if len(runs) < study.num_trials:
        return num_trials
    present = dict.fromkeys(run.identity for run in runs[-num_trials:])
    return sum(state.state != FINISHED for state in run_states(results, present, {}).values())
