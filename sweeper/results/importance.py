"""Which hyperparameters mattered, for each objective: what a forest loses when one of them is shuffled.

A random forest learns each trial's result from its configuration; the importance of a parameter is how much R squared
the forest loses, on trials that it has not seen, when the parameter's values are permuted (permutation importance,
Breiman 2001, https://doi.org/10.1023/A:1010933404324). It is no part of what is explained: shuffled values mislead a
forest that trusts them, so that one parameter may lose more than the forest explains. A parameter that only some
trials have (a choice's own) is permuted among those that have it: which choice was made is credited to the choice, not
to its parameters.

These are numbers about the trials of this sweep, which a sampler chose, not about the whole search space: a sampler
that stays where results are good leaves little variance to explain there.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sweeper.pareto.dominance import Floats, costs, hypervolume
from sweeper.records import ConfigValues, Objective, Point
from sweeper.results.front import Front
from sweeper.results.pick import rank
from sweeper.results.rehearsal_ranking import Rehearsed
from sweeper.specification.fields.nested import flatten

LEAST_TRIALS = 8  # with fewer, a forest sees five and is asked about two or three
MOST_TRIALS = 400
FRONT = "hypervolume"
_TREES, _FOLDS, _SHUFFLES = 32, 3, 5
_ALIKE = 1e-9  # results whose deviation is a smaller share of them differ by rounding alone


@dataclass(frozen=True, slots=True)
class Importance:
    """What mattered for one result."""

    target: str  # an objective, in the best point of a trial; or ``hypervolume``, that of all points of a trial
    # share of the variance over unseen trials that the forest explains (R squared); where it is near or below 0,
    # the importances mean nothing
    explained: float
    # by parameter, the R squared that the forest loses when it is permuted; they do not add up to ``explained``, and
    # each may be larger; chance puts those of parameters that say nothing a little above or below 0
    losses: Mapping[str, float]
    # by parameter, the standard error of that loss, a mean over unseen trials
    errors: Mapping[str, float] = field(default_factory=dict)


def importances(front: Front, *, trials: Collection[str] | None = None, seed: int = 0) -> tuple[Importance, ...]:
    """Return what mattered for each objective and for the hypervolume of a trial, among all trials or these.

    Of many trials, `MOST_TRIALS` evenly spread ones count. A hypervolume that says what an objective says is left out.

    Returns:
        Nothing with fewer than `LEAST_TRIALS` trials that have every objective, or where no parameter or result varies.
    """
    by_trial = _results(front)
    ids = [id_ for id_ in front.trials if id_ in by_trial and (trials is None or id_ in trials)]
    targets = [*(objective.name for objective in front.objectives), FRONT]
    return _importances([front.trials[id_].config for id_ in ids], [by_trial[id_] for id_ in ids], targets, seed)


def rehearsed_importances(
    rehearsed: Rehearsed, objectives: Sequence[Objective], *, seed: int = 0
) -> tuple[Importance, ...]:
    """Return what mattered for what rehearsed configurations have shown, as `importances` does for trials.

    Epsilon, which they do not have, is left out; the hypervolume is that of all their epochs over the other objectives.
    """
    names = [objective.name for objective in objectives if objective.name != "epsilon"]
    configs, results = [], []
    for one in rehearsed:
        if one.best is not None and one.volume is not None:
            configs.append(one.configuration.config)
            results.append([*(one.best.values[name] for name in names), one.volume])
    return _importances(configs, results, [*names, FRONT], seed)


def _importances(
    configs: Sequence[ConfigValues], found: Sequence[Sequence[float]], targets: Sequence[str], seed: int
) -> tuple[Importance, ...]:
    count = len(configs)
    chosen = range(count) if count <= MOST_TRIALS else [i * count // MOST_TRIALS for i in range(MOST_TRIALS)]
    names, features = encode([flatten(configs[i]) for i in chosen])
    if count < LEAST_TRIALS or not names:
        return ()
    results = np.array([found[i] for i in chosen])
    spread = results.std(axis=0)
    kept = spread > _ALIKE * np.abs(results).max(axis=0)
    if not kept.any():
        return ()
    centred = results - results.mean(axis=0)
    scaled = centred / np.where(kept, spread, 1.0)
    kept[-1] &= not any(np.allclose(scaled[:, -1], scaled[:, i]) for i in np.flatnonzero(kept[:-1]))
    explained, losses, errors = _explain(features, scaled[:, kept], np.random.default_rng(seed))
    varied = [name for name, keep in zip(targets, kept, strict=True) if keep]
    return tuple(
        Importance(
            target,
            float(explained[i]),
            dict(zip(names, losses[:, i].tolist(), strict=True)),
            dict(zip(names, errors[:, i].tolist(), strict=True)),
        )
        for i, target in enumerate(varied)
    )


def encode(configurations: Sequence[Mapping[str, object]]) -> tuple[tuple[str, ...], Floats]:
    """Return the names that vary, and a row of numbers per configuration.

    A number is its place among the numbers of that name, which is all a forest looks at; anything else the place of
    its text. NaN stands for a value that a configuration lacks.
    """
    names, columns = [], []
    for name in dict.fromkeys(name for configuration in configurations for name in configuration):
        values = [configuration.get(name) for configuration in configurations]
        if len({repr(value) for value in values}) < 2:
            continue
        numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values if v is not None)
        kind: Callable[[Any], Any] = float if numeric else str
        places = {value: i for i, value in enumerate(sorted({kind(v) for v in values if v is not None}))}
        names.append(name)
        columns.append([np.nan if v is None else places[kind(v)] for v in values])
    return tuple(names), np.array(columns, dtype=np.float64).reshape(len(names), len(configurations)).T


def _results(front: Front) -> dict[str, list[float]]:
    points: dict[str, list[Point]] = {}
    for point, row in zip(front.points, costs(front.points, front.objectives), strict=True):
        if np.isfinite(row).all():
            points.setdefault(point.trial, []).append(point)
    return {id_: _result(found, front.objectives, front) for id_, found in points.items()}


def _result(points: Sequence[Point], objectives: Sequence[Objective], front: Front) -> list[float]:
    utility = next((one for one in objectives if one.name != "epsilon"), objectives[0])
    best = max(points, key=lambda point: rank(point, utility))
    return [*(best.values[o.name] for o in objectives), hypervolume(points, objectives, front.box)]


def _explain(features: Floats, targets: Floats, generator: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Return for targets of unit variance the R squared of a forest, what it loses without each feature, and its error.

    That loss is a mean over trials, each in the fold that one forest has not seen: the last is its standard error.
    """
    from sklearn.ensemble import RandomForestRegressor

    folds = generator.permutation(len(features)) % _FOLDS
    squared = np.zeros(targets.shape)
    lost = np.zeros((features.shape[1], *targets.shape))
    for fold in range(_FOLDS):
        seen, unseen = folds != fold, folds == fold
        state = int(generator.integers(2**31))
        forest = RandomForestRegressor(_TREES, min_samples_leaf=2, random_state=state)
        forest.fit(features[seen], targets[seen].squeeze())
        inputs, truth = features[unseen], targets[unseen]
        columns = [column for column in range(features.shape[1]) for _ in range(_SHUFFLES)]
        copies = [inputs, *(_permute(inputs, column, generator) for column in columns)]
        predicted = forest.predict(np.concatenate(copies)).reshape(len(copies), *truth.shape)  # at once: calls cost
        squares: Floats = np.square(predicted - truth)
        squared[unseen] = squares[0]
        lost[:, unseen] = squares[1:].reshape(len(lost), _SHUFFLES, *truth.shape).mean(axis=1) - squares[0]
    return 1.0 - squared.mean(axis=0), lost.mean(axis=1), lost.std(axis=1, ddof=1) / np.sqrt(len(features))


def _permute(inputs: Floats, column: int, generator: np.random.Generator) -> Floats:
    shuffled = inputs.copy()
    having = np.flatnonzero(~np.isnan(inputs[:, column]))
    shuffled[having, column] = inputs[generator.permutation(having), column]
    return shuffled
