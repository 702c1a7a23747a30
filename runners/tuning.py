"""A study that tunes, as the command line and an experiment's file declare it."""

import argparse
import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from runners.planning import chosen_experiment, names_and_words, without
from runners.study import Declared, go_on
from syncline.config import (
    ConfigError,
    Invocation,
    RatesConfig,
    RunConfig,
    SlurmConfig,
    TuneConfig,
    apart,
    choices,
    compose,
    compose_study,
    divided,
    is_swept,
    split,
    sweep,
)
from syncline.config.folders import use
from syncline.plan import Plan
from syncline.studies.tune import Row, Tuning

Grid = list[tuple[str, list[str]]]
"""(label, overrides) of each row."""


def main(asked: argparse.Namespace) -> int:
    """`syncline tune`: goes on with a study, to its answer or to the submission of its present stage."""
    use(*asked.config_dir)
    declared, invocation = declared_tuning(asked.words)
    study = go_on(declared, invocation, asked.follows)
    is_complete = study.answer is not None and all(choice["value"] is not None for choice in study.answer["choices"])
    return 0 if is_complete or isinstance(invocation.launcher, SlurmConfig) else 1


def declared_tuning(words: Sequence[str]) -> tuple[Declared, Invocation]:
    """The study that these words declare: it tunes each row of an experiment, or each combination of a sweep's values.

    Raises:
        ConfigError: no row learns, a key or a baseline is unknown, or tuning seeds are seeds that judge.
    """
    names, others = names_and_words(words)
    of_study, overrides = apart("tune", others)
    command = ("tune", *words)
    if names:
        return _of_experiment(names, of_study, overrides, command)
    return _of_sweep(of_study, overrides, command)


def _of_experiment(
    names: Sequence[str], of_study: Sequence[str], overrides: Sequence[str], command: tuple[str, ...]
) -> tuple[Declared, Invocation]:
    if len(names) > 1 or names[0] not in choices("experiment"):
        raise ConfigError(f"tune takes one experiment, got {', '.join(names)}; syncline run --help lists them")
    chosen = chosen_experiment([f"+experiment={names[0]}", *overrides])
    own_declaration = chosen.content.get("tune") or {}
    tune, scale = compose_study(TuneConfig, "tune", "rate", of_study, own_declaration), chosen.invocation.scale
    judging = {seed for seeds in (chosen.content.get("seeds") or {}).values() for seed in seeds}
    last_looks = [sizes[-1] for sizes in (chosen.content.get("looks") or {}).values()]
    judging |= {*scale.seeds, *chosen.judging_seeds(max(last_looks, default=0))}
    _check_seeds(tune, judging, chosen.own)
    own = without(divided(chosen.own)[0], "seed")
    grid = [(label, [*words, *own]) for label, words in chosen.rows(arms=False)]
    labels = [label for label, _ in grid]
    groups = {label: label.rpartition("/")[0] for label in labels}
    baselines = {groups[label]: label for label in labels if tune.baseline in (label, label.rpartition("/")[2])}
    is_asked = "baseline" in own_declaration or _sets_baseline(of_study)
    study = _study(tune, grid, groups, baselines, is_asked)
    plan = Plan(f"tune-{chosen.name}", scale.name, (), {}, command)
    return Declared(study, "tune", plan.stem, chosen.name, plan), chosen.invocation


def _of_sweep(
    of_study: Sequence[str], overrides: Sequence[str], command: tuple[str, ...]
) -> tuple[Declared, Invocation]:
    words, about = divided(overrides)
    rows = [list(row) for row in dict.fromkeys(map(tuple, sweep(without(words, "seed"))))]
    if not rows:
        raise ConfigError(f"no rows in {' '.join(overrides)}")
    config, invocation = compose([*rows[0], *about])
    tune = compose_study(TuneConfig, "tune", "rate", of_study)
    refuse_several(words, tune.keys or [tune.key])
    _check_seeds(tune, set(invocation.scale.seeds), overrides)
    shared = set.intersection(*map(set, rows)) if len(rows) > 1 else set(rows[0])
    grid, groups, baselines = Grid(), dict[str, str](), dict[str, str]()
    for row in rows:
        own = [word for word in row if word not in shared]
        strategy = compose(row)[0].strategy.name
        label = " ".join(own) or strategy
        group = " ".join(word for word in own if not word.startswith("strategy"))
        grid.append((label, row))
        groups[label] = group
        if tune.baseline in (label, strategy):
            baselines.setdefault(group, label)
    study = _study(tune, grid, groups, baselines, _sets_baseline(of_study))
    declared = {key: value for key, value in asdict(study).items() if not callable(value)}
    digest = hashlib.sha256(repr(declared).encode()).hexdigest()[:8]
    plan = Plan("tune", invocation.scale.name, (), {}, command, own_stem=f"tune-{digest}")
    name = f"{config.model.name} on {config.dataset.name}, cluster {config.cluster.name}"
    return Declared(study, "tune", plan.stem, name, plan), invocation


def refuse_several(words: Sequence[str], tuned: Collection[str]) -> None:
    """Raises ConfigError: a tuned key has several values."""
    for word in words:
        if split(word)[0] in tuned and is_swept(word):
            raise ConfigError(f"{word}: a key that is tuned has one value, about which others are tried")


def _study(
    tune: TuneConfig, grid: Grid, groups: dict[str, str], baselines: dict[str, str], is_baseline_asked: bool
) -> Tuning:
    """The declaration over the rows that learn and are wanted."""
    configs = {label: compose(words)[0] for label, words in grid}
    learned = [(label, words) for label, words in grid if configs[label].gradients]
    if not learned:
        raise ConfigError("tune needs runs that learn: all of these have gradients=false")
    known = ", ".join(label for label, _ in learned)
    if is_baseline_asked and not baselines:
        raise ConfigError(f"tune.baseline must be of {known}; got {tune.baseline}")
    absent = [name for name in tune.rows if not any(_is_named(label, [name]) for label, _ in learned)]
    if absent:
        raise ConfigError(f"tune.rows must be of {known}; got {', '.join(absent)}")
    wanted = [(label, words) for label, words in learned if not tune.rows or _is_named(label, tune.rows)]
    labels = [label for label, _ in wanted]
    parts = {part for label in labels for part in (label, *label.split("/"))}
    if isinstance(tune.center, dict) and (unused := [part for part in tune.center if part not in parts]):
        raise ConfigError(f"tune.center must be of parts of {', '.join(labels)}; got {unused[0]}")
    baselines = {group: label for group, label in baselines.items() if label in labels}
    rows = tuple(_row(tune, label, words, configs[label], baselines.get(groups[label])) for label, words in wanted)
    return Tuning(
        rows,
        " ".join(tune.keys or [tune.key]),
        float(tune.factor),
        tune.points,
        tuple(tune.seeds),
        tune.validation,
        tune.screen_share,
        tune.finalists,
        is_valid=_is_valid,
    )


def _is_valid(overrides: Sequence[str]) -> bool:
    try:
        compose(overrides)
    except ConfigError:
        return False
    return True


def _row(tune: TuneConfig, label: str, words: Sequence[str], config: RunConfig, baseline: str | None) -> Row:
    length = config.epochs, config.max_updates, config.max_time_s
    if settings := drawn_settings(tune, label, words, config):
        return Row(label, tuple(words), 1.0, None, settings, *length)
    center = tune.center_of(label)
    if center is None:
        value = _at(config, tune.key)
        if not _is_number(value) or not value > 0:
            raise ConfigError(
                f"tune.key must be a key with a number > 0, or tune.center be set: {tune.key} of {label} is {value}"
            )
        center = float(value)
    return Row(label, tuple(words), center, baseline, (), *length)


def drawn_settings(
    rates: RatesConfig, label: str, words: Sequence[str], config: RunConfig
) -> tuple[tuple[str, ...], ...]:
    """The overrides of each setting of a row's keys; () where one key is tuned on a grid.

    Settings are points of a Halton sequence in the ranges, logarithmic where a range begins above 0, and rounded where
    the key is a whole number. A row lacks the keys that it has no number at; of the others all rows have the same.

    Source of the search: Dahl et al., Benchmarking Neural Network Training Algorithms, 2023, section 4.4.1.

    Raises:
        ConfigError: the row has none of the keys, or is no valid run with a setting.
    """
    if rates.keys is None:
        return ()
    own = {key: _at(config, key) for key in rates.keys}
    if not any(map(_is_number, own.values())):
        raise ConfigError(f"tune.keys must have a number of each row, got {', '.join(own)}: {label} has none")
    from scipy.stats.qmc import Halton  # half a second

    places = Halton(len(own), scramble=False).random(rates.points + 1)[1:]  # the first is at all lower ends
    settings = tuple(
        tuple(
            f"{key}={_in_range(place, rates.keys[key], is_whole=isinstance(value, int))}"
            for place, (key, value) in zip(point, own.items(), strict=True)
            if _is_number(value)
        )
        for point in places
    )
    for setting in settings:
        compose([*words, *setting])
    return settings


def _in_range(place: float, ends: Sequence[float], is_whole: bool) -> str:
    """The value at a place in (0, 1) of a range."""
    low, high = ends
    value = low * (high / low) ** place if low > 0 else high * place
    return str(round(value)) if is_whole else f"{value:.4g}"


def _at(config: RunConfig, key: str) -> Any:
    """The value of a dotted key, as composed; None: there is no such key."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name, None)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_named(label: str, names: Iterable[str]) -> bool:
    return label in names or label.rpartition("/")[2] in names


def _sets_baseline(overrides: Sequence[str]) -> bool:
    return any(split(word)[0] == "tune.baseline" for word in overrides)


def _check_seeds(tune: TuneConfig, judging: set[int], overrides: Sequence[str]) -> None:
    """Refuse tuning seeds that also judge, whether an experiment, a scale or the command line says so."""
    asked = [word for word in divided(overrides)[0] if split(word)[0] == "seed"]
    judging = judging | {compose(row)[0].seed for row in (sweep(asked) if asked else [])}
    if both := sorted(judging & set(tune.seeds)):
        raise ConfigError(f"tune.seeds must not be seeds that judge, got {', '.join(map(str, both))} in both")
