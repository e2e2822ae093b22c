"""Warm start: what trials of an earlier sweep teach the sampler of this one.

Only parameters and outcomes pass, into proposals. No point, model or spent epsilon of the earlier sweep enters this
one's front or ledger; the claim says that proposals were steered, and by unpaid scores if so
(`sweeper.privacy.claims`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from clipless.plans.method import Method
from sweeper.driver.resume import recorded_claim
from sweeper.errors import RecordError
from sweeper.pareto.dominance import FrontArchive
from sweeper.privacy.claims import Steering
from sweeper.records import Objective, Scalar, TrialStatus
from sweeper.search.observation import Observation
from sweeper.specification.constraints import OutcomeConstraint
from sweeper.specification.dimensions import Dimension
from sweeper.specification.fields.nested import leaves
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.objectives import same
from sweeper.specification.search import MLFLOW
from sweeper.store.manifest import MANIFEST_NAME
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.client import LoggedTrial, logged_trials
from sweeper.tracking.names import clean, metric_names

# What a trial may be run with differently and still have the same outcome.
_NO_MATTER = ("training.micro_batch_size",)


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What there is to learn from."""

    source: str  # the name of its folder, or of its experiment
    observations: tuple[Observation, ...]
    unfit: int  # how many trials have other parameters than this space allows
    unscored: int  # how many have no number for some objective
    steering: Steering

    @property
    def statement(self) -> str:
        """What was used, in one sentence."""
        return (
            f"Warm start: {len(self.observations)} trials of {self.source} steer the first proposals; {self.unfit} do "
            f"not fit this space, {self.unscored} have no number for every objective."
        )


def observations(
    source: str,
    dimensions: Sequence[Dimension],
    objectives: Sequence[Objective],
    constraints: Sequence[OutcomeConstraint] = (),
    *,
    beside: str | Path | None = None,
    tracking: str | None = None,
) -> WarmStart:
    """Return what the trials of an earlier sweep teach about this space.

    A trial counts with its last epoch on the earlier sweep's front, by these objectives, or with its last one; a trial
    from MLflow with its last one.

    A trial fits if it has the values of the dimensions where they are fixed, values within their ranges where they are
    open, and nothing else. A folder beside the spec's file, ``beside``, comes first.

    Raises:
        RecordError: no such sweep, or no store is named.
        SweeperError: the store cannot be read.
    """
    if source.startswith(MLFLOW):
        name = source.removeprefix(MLFLOW).strip()
        runs = _runs(name, tracking)
        trials = list(_of_runs(runs, objectives, constraints))
        sweeps, exploratory = len({run.sweep for run in runs}), any(run.exploratory for run in runs)
        steering = Steering.by_experiment(
            name, sweeps=sweeps, exploratory=exploratory, unbounded=_are_unbounded(config for config, _ in trials)
        )
    else:
        folder = _folder(source, beside)
        trials = list(_of_folder(folder, objectives))
        name = folder.path.resolve().name
        unbounded = _are_unbounded(dict(leaves(trial.config)) for trial in folder.trials().values())
        steering = Steering.by_sweep(folder.path, recorded_claim(folder), unbounded=unbounded)
    found, unfit, unscored = [], 0, 0
    for config, values in trials:
        params = fit(config, dimensions)
        numbers = None if params is None else _numbers(values, objectives)
        if params is None:
            unfit += 1
        elif numbers is None:
            unscored += 1
        else:
            missed = {str(one): one.violation(_spelled(values, [one.name])) for one in constraints}
            found.append(Observation(params, numbers, missed))
    return WarmStart(name, tuple(found), unfit, unscored, steering)


def _are_unbounded(configs: Iterable[Mapping[str, Any]]) -> bool:
    return any(config.get("training.method") == Method.NON_PRIVATE.value for config in configs)


def _folder(source: str, beside: str | Path | None) -> SweepFolder:
    near = None if beside is None else Path(beside).parent / source
    path = near if near is not None and (near / MANIFEST_NAME).is_file() else Path(source)
    folder = SweepFolder(path)
    folder.read_manifest()
    return folder


def _of_folder(
    folder: SweepFolder, objectives: Sequence[Objective]
) -> Iterator[tuple[dict[str, Any], Mapping[str, float]]]:
    """Yield the configuration and the outcome of each trial; no outcome for one that failed."""
    told = {(point.trial, point.epoch): point for point in folder.points().values() if not point.made_from}
    archive = FrontArchive(objectives)
    scored = ((point, _numbers(point.values, objectives)) for point in told.values())
    named = [objective.name for objective in objectives]
    archive.add(
        replace(point, values=dict(zip(named, numbers, strict=True)))
        for point, numbers in scored
        if numbers is not None
    )
    best = {point.trial: point.epoch for point in sorted(archive.points, key=lambda point: point.epoch)}
    last: dict[str, int] = {}
    for name, epoch in told:
        last[name] = max(epoch, last.get(name, 0))
    for trial in folder.trials().values():
        epoch = best.get(trial.id, last.get(trial.id, 0))
        counts = trial.status is not TrialStatus.FAILED and epoch > 0
        yield dict(leaves(trial.config)), told[trial.id, epoch].values if counts else {}


def _runs(name: str, tracking: str | None) -> list[LoggedTrial]:
    if tracking is None:
        raise RecordError(
            f"Expected the store of the experiment {name} (search.warm_start), got none: name it with --tracking"
        )
    return logged_trials(tracking, name)


def _of_runs(
    runs: Iterable[LoggedTrial], objectives: Sequence[Objective], constraints: Sequence[OutcomeConstraint]
) -> Iterator[tuple[dict[str, Any], Mapping[str, float]]]:
    wanted = [*(objective.name for objective in objectives), *(constraint.name for constraint in constraints)]
    keys = {name: clean(next(iter(metric_names({name: 0.0})))) for name in wanted}
    for run in runs:
        config = {key: _parsed(text) for key, text in run.params.items()}
        yield config, {name: run.metrics[key] for name, key in keys.items() if key in run.metrics}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def fit(config: Mapping[str, Any], dimensions: Sequence[Dimension]) -> dict[str, Scalar] | None:
    """Return the values of open dimensions, ``None`` if the configuration is none of this space."""
    left = {key: value for key, value in config.items() if value is not None and key not in _NO_MATTER}
    chosen: dict[str, Scalar] = {}
    params: dict[str, Scalar] = {}
    for dimension in dimensions:
        if dimension.key in _NO_MATTER or (dimension.when is not None and not dimension.when.holds(chosen)):
            continue
        value = _settled(dimension, left.pop(dimension.key, None))
        if value is None:
            return None
        chosen[dimension.name] = value
        if dimension.space is not None:
            params[dimension.name] = value
    return None if left else params


def _settled(dimension: Dimension, value: Any) -> Any:
    space = dimension.space
    if isinstance(space, Choices):
        return next((choice for choice in space.values if _equal(choice, value)), None)
    if isinstance(space, Range):
        if value not in space:
            return None
        return int(value) if space.integer else float(value)
    return dimension.value if _equal(dimension.value, value) else None


def _equal(own: Any, other: Any) -> bool:
    if isinstance(own, tuple):
        return isinstance(other, list | tuple) and list(own) == list(other)
    return bool(own == other) and isinstance(own, bool) == isinstance(other, bool)


def _numbers(values: Mapping[str, float], objectives: Iterable[Objective]) -> tuple[float, ...] | None:
    names = [objective.name for objective in objectives]
    spelled = _spelled(values, names)
    numbers = tuple(float(spelled[name]) for name in names if name in spelled)
    return numbers if len(numbers) == len(names) and all(map(isfinite, numbers)) else None


def _spelled(values: Mapping[str, float], names: Iterable[str]) -> dict[str, float]:
    """Return the values under this sweep's spelling of their names: ``certified@1/4`` for ``certified@0.25``."""
    return {name: value for name in names for other, value in values.items() if same(name, other)}
