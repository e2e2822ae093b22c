"""The search: Optuna proposes through Ray's searcher interface and is told how each trial ended.

Ray's own adapter loses multi-objective results: a NaN leaves its trial running for ever, a missing metric
aborts the whole run. Here every proposal ends as complete, with a number for every objective in its last
epoch, or as failed. Tune is not configured here (``engine.py``), spaces are not defined here (``space.py``).
"""

import json
import math
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never, cast

import optuna
from optuna.trial import TrialState
from ray.tune.search.optuna import OptunaSearch

from sweeper.outcomes import Constraint
from sweeper.records import Direction, Objective
from sweeper.settings import Sampler
from sweeper.space import quiet_optuna

Space = Callable[[optuna.Trial], Mapping[str, Any]]

ROW = "row"  # the key under which a trial's row travels through Ray, as one JSON text


def make_sampler(kind: Sampler, seed: int) -> optuna.samplers.BaseSampler:
    """A sampler whose proposals depend on the seed and on the order of the results, on nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return _sampler(kind, seed)


def _sampler(kind: Sampler, seed: int) -> optuna.samplers.BaseSampler:
    samplers = optuna.samplers
    match kind:
        case Sampler.TPE:
            return samplers.TPESampler(seed=seed)
        case Sampler.GP:
            return samplers.GPSampler(seed=seed, warn_independent_sampling=False)
        case Sampler.NSGA2:
            return samplers.NSGAIISampler(seed=seed, population_size=_POPULATION)
        case Sampler.NSGA3:
            return samplers.NSGAIIISampler(seed=seed, population_size=_POPULATION)
        case Sampler.QUASI_RANDOM:
            return samplers.QMCSampler(
                scramble=True, seed=seed, warn_asynchronous_seeding=False, warn_independent_sampling=False
            )
        case Sampler.RANDOM:
            return samplers.RandomSampler(seed=seed)
        case Sampler.GRID:
            return _Grid(seed=seed)
        case _:
            assert_never(kind)


class _Grid(optuna.samplers.BruteForceSampler):
    """Every configuration once, in an order that the seed fixes; conditional values included."""

    def after_trial(self, *args: Any, **kwargs: Any) -> None:
        """Do not end the study when all are done, which only ``Study.optimize`` allows."""


# Trials of one generation of the evolutionary samplers: sweeps have tens of trials, not thousands.
_POPULATION = 16


class FrontSearch(OptunaSearch):
    """Multi-objective proposals from a define-by-run space.

    A proposal reaches the trainable as ``{"trial": "t0007", "proposal": ...}``. Results are rows as
    ``desk.py`` describes them, packed by ``engine.py``; a trial counts with its last epoch, its plan is no
    result.

    Args:
        space: asks an Optuna trial for its values and returns the proposal.
        objectives: what to optimise; an objective's name is its key in a row's ``values``.
        sampler: what proposes.
        seed: fixes the proposals, given the same results in the same order.
        first: parameter values to try first; parameters left out of one are sampled.
        constraints: what outcomes should meet; they steer TPE, GP, NSGA-II and NSGA-III towards those that do.
    """

    def __init__(
        self,
        space: Space,
        objectives: Sequence[Objective],
        *,
        sampler: Sampler = Sampler.TPE,
        seed: int,
        first: Sequence[Mapping[str, Any]] = (),
        constraints: Sequence[Constraint] = (),
    ) -> None:
        self._objectives = tuple(objective.name for objective in objectives)
        self._propose = space
        self._constraints = tuple(constraints)
        self._open: dict[str, optuna.Trial] = {}
        self._violations: dict[str, dict[str, float]] = {}
        self._last_values: dict[str, tuple[float, ...] | None] = {}
        with quiet_optuna():
            super().__init__(
                lambda trial: dict(space(trial)),
                metric=list(self._objectives),
                mode=["min" if one.direction is Direction.MINIMIZE else "max" for one in objectives],
                points_to_evaluate=[dict(point) for point in first],
                sampler=make_sampler(sampler, seed),
            )

    @property
    def metric(self) -> None:  # type: ignore[override]
        """Nothing Ray may check: a result without a metric is a failed trial here, not the end of the run."""

    @property
    def study(self) -> optuna.Study:
        """The Optuna study behind the proposals."""
        return cast(optuna.Study, self._ot_study)

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Propose the configuration of one trial; the same again when asked again."""
        if trial_id not in self._open:
            self._open[trial_id] = self.study.ask()
        trial = self._open[trial_id]
        try:
            proposal = dict(self._propose(trial))
        except Exception:
            self._tell(trial_id, None)
            raise
        return {"trial": f"t{trial.number + 1:04d}", "proposal": proposal}

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Keep the values of an epoch; a later epoch replaces them."""
        row = read_row(result)
        if row.get("kind") == "epoch":
            self._last_values[trial_id] = self._values(row)
            self._violations[trial_id] = {
                str(constraint): constraint.violation(row.get("values", {})) for constraint in self._constraints
            }

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Tell Optuna how the trial ended: complete with its last epoch's values, or failed."""
        if result:
            self.on_trial_result(trial_id, result)
        values = self._last_values.pop(trial_id, None)
        self._tell(trial_id, None if error else values)

    def abandon(self) -> None:
        """Tell Optuna that every trial still open has failed."""
        for trial_id in list(self._open):
            self._tell(trial_id, None)

    def save(self, checkpoint_path: str) -> None:
        """Write everything but the space, which may be a closure and belongs to the caller."""
        state = {name: value for name, value in self.__dict__.items() if name not in {"_space", "_propose"}}
        Path(checkpoint_path).write_bytes(pickle.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        """Continue from a saved state with this object's own space."""
        self.__dict__.update(pickle.loads(Path(checkpoint_path).read_bytes()))

    def _values(self, row: Mapping[str, Any]) -> tuple[float, ...] | None:
        values = [row.get("values", {}).get(name) for name in self._objectives]
        if any(not isinstance(value, int | float) or math.isnan(value) for value in values):
            return None
        return tuple(float(value) for value in values)

    def _tell(self, trial_id: str, values: tuple[float, ...] | None) -> None:
        trial = self._open.pop(trial_id, None)
        violations = self._violations.pop(trial_id, {})
        if trial is not None:
            for name, violation in violations.items():
                trial.set_constraint(name, violation)
            state = TrialState.FAIL if values is None else TrialState.COMPLETE
            self.study.tell(trial, values, state=state, skip_if_finished=True)


def read_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """The row inside a Ray result, ``{}`` if there is none."""
    text = result.get(ROW)
    return json.loads(text) if isinstance(text, str) else {}
