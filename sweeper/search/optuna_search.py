"""The search: Optuna proposes, and is told how each trial ended. Ray is not known here.

Everything that is asked and told is written down first, so that a search can be rebuilt exactly: a proposal depends on
the seed, on its number, and on what was asked and told before it, on nothing else. Spaces are not defined here
(``space.py``).

A Gaussian process takes up to a second for a proposal, in which a free place would wait, and the rows of the other
trials with it. Its next proposal is therefore asked for in a thread as soon as the one before it is handed out, and
whatever is told in the meantime is told after it: when a trial ends, the one that takes its place does not know how.
"""

import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import isnan
from pathlib import Path
from typing import Any, Protocol, assert_never

import numpy as np
import optuna
from optuna.trial import TrialState, create_trial

from sweeper.pareto.dominance import Box, FrontArchive, costs, exclusive
from sweeper.records import Objective, Point
from sweeper.search.observation import Observation
from sweeper.search.space import quiet_optuna
from sweeper.spec import plugins
from sweeper.spec.constraints import Constraint
from sweeper.spec.search import Sampler
from sweeper.store.jsonl import JsonlFile

Space = Callable[[optuna.Trial], Mapping[str, Any]]

# Epochs of one trial that TPE is told. The other samplers are told one: to them a configuration has one outcome.
TOLD_EPOCHS = 3

# Trials of one generation of the evolutionary samplers: sweeps have tens of trials, not thousands.
_POPULATION = 16

# Samplers that note things down in the study when they are asked, as plug-ins may: they have to be asked again.
_REMEMBERING = (Sampler.NSGA2, Sampler.NSGA3, Sampler.QUASI_RANDOM)


def make_sampler(kind: Sampler | str, seed: int) -> optuna.samplers.BaseSampler:
    """A sampler whose proposals depend on the seed and on the order of the results; a plug-in by its name.

    Raises:
        SpecError: no such plug-in, or it gives no sampler.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if isinstance(kind, Sampler):
            return _sampler(kind, seed)
        return plugins.sampler(kind, seed, optuna.samplers.BaseSampler)  # type: ignore[type-abstract]


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


class Proposals(Protocol):
    """What starts trials needs of a search."""

    asked: int
    open: dict[str, dict[str, Any]]

    def ask(self) -> str:
        """Propose a configuration, put it into ``open``, and return its trial's id."""
        ...

    def skip(self, trials: int) -> None:
        """Leave out so many ids."""
        ...

    def report(self, point: Point) -> None:
        """Take in an epoch."""
        ...

    def finish(self, trial: str, *, failed: bool = False) -> None:
        """A trial has ended."""
        ...


class _Grid(optuna.samplers.BruteForceSampler):
    """Every configuration once, in an order that the seed fixes; conditional values included."""

    def after_trial(self, *args: Any, **kwargs: Any) -> None:
        """Do not end the study when all are done, which only ``Study.optimize`` allows."""


class Search:
    """Multi-objective proposals from a define-by-run space.

    Args:
        space: asks an Optuna trial for its values and returns the proposal.
        objectives: what to optimise.
        sampler: what proposes; the name of a plug-in for one of one's own, made anew for each proposal.
        seed: fixes the proposals, given the same results in the same order.
        first: parameter values to try first; parameters left out of one are sampled.
        constraints: what outcomes should meet; they steer TPE, GP, NSGA-II and NSGA-III towards those that do.
        earlier: outcomes of earlier sweeps to learn from.
        journal: the file of what was asked and told; what it holds is taken up again, before what is earlier.
        trials: how many there will be in all; before the last one, slow proposals are prepared.
    """

    def __init__(
        self,
        space: Space,
        objectives: Sequence[Objective],
        *,
        sampler: Sampler | str = Sampler.TPE,
        seed: int,
        first: Sequence[Mapping[str, Any]] = (),
        constraints: Sequence[Constraint] = (),
        earlier: Sequence[Observation] = (),
        journal: Path | None = None,
        trials: int = 0,
    ) -> None:
        self._space, self._objectives, self._constraints = space, tuple(objectives), tuple(constraints)
        self._sampler, self._seed = sampler, seed
        self._first = deque(dict(one) for one in first)
        self._archive = FrontArchive(self._objectives)
        self._arrived: list[Point] = []  # epochs that are not in the archive yet
        self._trials: dict[str, optuna.Trial] = {}
        self._epochs: dict[str, list[Point]] = {}
        self.asked = self._numbered = 0  # handed out; proposed
        self.open: dict[str, dict[str, Any]] = {}
        self._to_come, self._thread = trials, ThreadPoolExecutor(1, thread_name_prefix="proposal")
        self._coming: tuple[Future[tuple[optuna.Trial, dict[str, Any]]], bool] | None = None
        self._ready: str | None = None
        with quiet_optuna():
            self.study = optuna.create_study(directions=[objective.direction.value for objective in self._objectives])
        self._journal = None
        if journal is not None:
            file = JsonlFile(journal, patient=True)
            for row in file.read():
                self._replay(row)
            self.asked = self._numbered
            self._journal = file
        for one in earlier:
            row = {"event": "learn", "params": one.params, "values": one.values, "violations": one.violations}
            self._write(row)
            self._learn(row)

    def ask(self) -> str:
        """Propose a configuration and return its trial's id, ``t0001`` the first; the proposal is in ``open``."""
        self._take_in()
        given = self._first.popleft() if self._first and self._ready is None else None
        name, self._ready = self._ready or self._ask(self._own_sampler(), given), None
        self.asked = self._numbered
        self._prepare()
        return name

    def skip(self, trials: int) -> None:
        """Leave out the ids of so many trials, of which something is recorded elsewhere."""
        self.asked = self._numbered = max(self._numbered, trials)

    def enqueue(self, params: Mapping[str, Any]) -> None:
        """Try these parameter values next; those left out are sampled."""
        self._first.append(dict(params))

    def report(self, point: Point) -> None:
        """Take in an epoch, with the epsilon that its trial reported."""
        if self._values(point) is not None:
            self._arrived.append(point)
            if point.trial in self.open:
                self._epochs[point.trial].append(point)

    def finish(self, trial: str, *, failed: bool = False) -> None:
        """Tell the sampler how an open trial ended; once.

        A trial counts with those of its epochs that are on the front of all trials now, or with its last one. One that
        failed, or has no epoch with a number for every objective, counts as failed.
        """
        if trial in self.open:
            self._take_in()
            told = [] if failed else [self._outcome(point) for point in self._contributing(trial)]
            self._write({"event": "tell", "trial": trial, "outcomes": told})
            self._tell(trial, told)

    def _prepare(self) -> None:
        """Begin to work out the next proposal, if there is to be one and it takes long."""
        if self._sampler is Sampler.GP and self._numbered < self._to_come:
            given = self._first.popleft() if self._first else None
            work = self._thread.submit(self._suggested, self._own_sampler(), given)
            self._coming = work, given is not None

    def _take_in(self) -> None:
        """Wait for the proposal that is being worked out, before anything else is asked or told."""
        if self._coming is not None:
            (work, given), self._coming = self._coming, None
            self._ready = self._opened(*work.result(), given=given)

    def _own_sampler(self) -> optuna.samplers.BaseSampler:
        """A sampler for the next trial alone."""
        seed = self._seed
        if self._sampler is not Sampler.QUASI_RANDOM:  # the points of one sequence share its seed
            seed = int(np.random.SeedSequence([self._seed, self._numbered + 1]).generate_state(1)[0])
        return make_sampler(self._sampler, seed)

    def _ask(self, sampler: optuna.samplers.BaseSampler, given: Mapping[str, Any] | None) -> str:
        trial, proposal = self._suggested(sampler, given)
        return self._opened(trial, proposal, given=given is not None)

    def _suggested(
        self, sampler: optuna.samplers.BaseSampler, given: Mapping[str, Any] | None
    ) -> tuple[optuna.Trial, dict[str, Any]]:
        self.study.sampler = sampler
        if given is not None:
            self.study.enqueue_trial(dict(given))
        trial = self.study.ask()
        try:
            return trial, dict(self._space(trial))
        except Exception:
            self.study.tell(trial, state=TrialState.FAIL)
            raise

    def _opened(self, trial: optuna.Trial, proposal: dict[str, Any], *, given: bool) -> str:
        self._numbered += 1
        name = f"t{self._numbered:04d}"
        self._write({"event": "ask", "trial": name, "params": dict(trial.params), "given": given})
        self._trials[name], self.open[name], self._epochs[name] = trial, proposal, []
        return name

    def _tell(self, trial: str, outcomes: Sequence[Mapping[str, Any]]) -> None:
        asked = self._trials.pop(trial)
        del self.open[trial], self._epochs[trial]
        if not outcomes:
            self.study.tell(asked, state=TrialState.FAIL)
            return
        for name, violation in outcomes[0]["violations"].items():
            asked.set_constraint(name, violation)
        frozen = self.study.tell(asked, [float(value) for value in outcomes[0]["values"]])
        for outcome in outcomes[1:]:
            self._add(frozen, outcome["values"], outcome["violations"])

    def _add(
        self, like: optuna.trial.FrozenTrial, values: Sequence[Any], violations: Mapping[str, float] | None = None
    ) -> None:
        numbers = [float(value) for value in values]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self.study.add_trial(
                create_trial(
                    params=like.params,
                    distributions=like.distributions,
                    values=numbers,
                    constraints=dict(violations) if violations else None,
                )
            )

    def _learn(self, row: Mapping[str, Any]) -> None:
        """Tell an outcome of an earlier sweep, under the distributions of this one."""
        trial, _ = self._suggested(make_sampler(Sampler.RANDOM, 0), row["params"])
        for name, violation in row["violations"].items():
            trial.set_constraint(name, violation)
        self.study.tell(trial, [float(value) for value in row["values"]])

    def _contributing(self, trial: str) -> list[Point]:
        epochs = self._epochs[trial]
        self._archive.add(self._arrived)
        self._arrived.clear()
        front = list(self._archive.points)
        mine = [i for i, point in enumerate(front) if point.trial == trial]
        if not mine:
            return epochs[-1:]
        added = exclusive(Box.default(self._objectives).placed(costs(front, self._objectives), self._objectives))
        best = sorted(mine, key=lambda i: (-added[i], front[i].epoch))
        return [front[i] for i in best[: TOLD_EPOCHS if self._sampler is Sampler.TPE else 1]]

    def _outcome(self, point: Point) -> dict[str, Any]:
        violations = {str(one): one.violation(point.values) for one in self._constraints}
        return {"epoch": point.epoch, "values": self._values(point), "violations": violations}

    def _values(self, point: Point) -> tuple[float, ...] | None:
        values = [point.values.get(objective.name) for objective in self._objectives]
        if any(not isinstance(value, int | float) or isnan(value) for value in values):
            return None
        return tuple(float(value) for value in values if value is not None)

    def _replay(self, row: Mapping[str, Any]) -> None:
        if row["event"] == "ask":
            given = self._first.popleft() if row["given"] and self._first else None
            if self._sampler in _REMEMBERING or not isinstance(self._sampler, Sampler):
                trial, proposal = self._suggested(self._own_sampler(), given)
                if trial.params == row["params"]:
                    self._opened(trial, proposal, given=row["given"])
                    return
                self.study.tell(trial, state=TrialState.FAIL)  # another version of the sampler
            trial, proposal = self._suggested(make_sampler(Sampler.RANDOM, self._seed), row["params"])
            self._opened(trial, proposal, given=row["given"])
        elif row["event"] == "learn":
            self._learn(row)
        elif row["trial"] in self.open:
            self._tell(row["trial"], row["outcomes"])

    def _write(self, row: Mapping[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(row)
