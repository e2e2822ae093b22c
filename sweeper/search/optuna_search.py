"""The search: Optuna proposes configurations and learns how each trial ended. It knows neither Ray nor the space.

The journal has every question and every answer before it counts, so that a search can be rebuilt exactly: a proposal
depends on the seed, its number, and what was asked and told before it, and on nothing else. Configurations that are
enqueued come again when a search is rebuilt, from the spec and from what people asked for; the journal tells those that
were tried already. A configuration that a stage promotes is in the journal alone.

A Gaussian process takes up to a second for a proposal, during which a free worker would wait. The search therefore asks
for the next proposal in a thread as soon as it has handed out the one before. Results that arrive in the meantime are
told after it: the trial that replaces an ended one does not know that one's result.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NotRequired, Protocol, TypedDict, cast

import optuna

from sweeper.records import Objective, Point, Scalar, name_trial, trial_number
from sweeper.search.observation import Observation, Observations, Outcome
from sweeper.search.samplers import sampler_kind
from sweeper.search.study import Proposal, Space, Study
from sweeper.specification.constraints import OutcomeConstraint, parse_constraint
from sweeper.specification.search import Sampler
from sweeper.store.jsonl import JsonlFile


class Proposer(Protocol):
    """What starts trials needs of a search."""

    @property
    def asked(self) -> int:
        """How many trials were asked for."""

    @property
    def open(self) -> dict[str, dict[str, Scalar]]:
        """The proposals of trials that have not ended."""

    def ask(self) -> str:
        """Propose a configuration, put it into ``open``, and return its trial's id."""


class Proposals(Proposer, Protocol):
    """What records trials needs of a search."""

    def skip(self, trials: int) -> None:
        """Leave out so many ids."""

    def report(self, point: Point) -> None:
        """Take in an epoch."""

    def finish(self, trial: str, *, failed: bool = False) -> None:
        """A trial has ended."""


@dataclass(frozen=True, slots=True)
class _Enqueued:
    """A configuration to try, and whether it comes again when the search is rebuilt."""

    params: Mapping[str, Scalar]
    comes_again: bool = True


class _AskRow(TypedDict):
    """A row of the journal: a trial was asked for."""

    event: Literal["ask"]
    trial: str
    params: Mapping[str, Scalar]
    given: NotRequired[Mapping[str, Scalar]]  # and ``comes_again``: of a configuration that was enqueued
    comes_again: NotRequired[bool]


class _TellRow(TypedDict):
    """A row of the journal: a trial has ended."""

    event: Literal["tell"]
    trial: str
    outcomes: Sequence[Outcome]


class _LearnRow(Outcome):
    """A row of the journal: the sampler learned an outcome of an earlier sweep."""

    event: Literal["learn"]
    params: Mapping[str, Scalar]


class _SteerRow(TypedDict):
    """A row of the journal: the search was steered."""

    event: Literal["steer"]
    region: Sequence[str]


_Row = _AskRow | _TellRow | _LearnRow | _SteerRow


class Search:
    """Multi-objective proposals from a define-by-run space.

    More than fifteen methods, for the order of asking, telling, writing down and preparing is one thing: a journal that
    is read back goes through the same methods as the run that wrote it.

    Args:
        space: asks an Optuna trial for its values and returns the proposal.
        sampler: what proposes, or the name of a plug-in; made anew for each proposal.
        seed: fixes the proposals, given the same results in the same order.
        first: parameter values to try first; parameters that one omits are sampled.
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
        first: Sequence[Mapping[str, Scalar]] = (),
        constraints: Sequence[OutcomeConstraint] = (),
        earlier: Sequence[Observation] = (),
        journal: Path | None = None,
        trials: int = 0,
    ) -> None:
        self._study, self._observations = Study(space, objectives), Observations(objectives, constraints)
        self._objectives = tuple(objective.name for objective in objectives)
        self._kind, self._seed = sampler_kind(sampler), seed
        self._first = deque(_Enqueued(dict(one)) for one in first)
        self._trials: dict[str, optuna.Trial] = {}
        self.asked = self._numbered = 0  # handed out; proposed
        self.open: dict[str, dict[str, Scalar]] = {}
        self.proposals: dict[str, dict[str, Scalar]] = {}  # of every trial that was asked for
        self._to_come, self._thread = trials, ThreadPoolExecutor(1, thread_name_prefix="proposal")
        self._coming: tuple[Future[Proposal], _Enqueued | None] | None = None
        self._ready: str | None = None
        self._journal: JsonlFile | None = None
        if journal is not None:
            self._take_up(JsonlFile(journal, patient=True))
        for one in earlier:
            self._write({"event": "learn", "params": one.params, "values": one.values, "violations": one.violations})
            self._learn(one.params, {"values": one.values, "violations": one.violations})

    @property
    def study(self) -> optuna.Study:
        """What Optuna was told."""
        return self._study.optuna

    def ask(self) -> str:
        """Propose a configuration and return its trial's id, ``t0001`` the first; the proposal is in ``open``."""
        self._take_in()
        given = self._first.popleft() if self._first and self._ready is None else None
        name, self._ready = self._ready or self._ask(given), None
        self.asked = self._numbered
        self._prepare()
        return name

    def skip(self, trials: int) -> None:
        """Leave out the ids of so many trials, of which something is recorded elsewhere."""
        self.asked = self._numbered = max(self._numbered, trials)

    @property
    def waiting(self) -> tuple[Mapping[str, Scalar], ...]:
        """The configurations that were enqueued and that no trial has had yet, the next one first."""
        return tuple(one.params for one in self._first)

    def enqueue(self, params: Mapping[str, Scalar], *, comes_again: bool = True) -> None:
        """Try these parameter values next; those you omit are sampled.

        ``comes_again``: they are among ``first`` when the search is rebuilt.
        """
        self._first.append(_Enqueued(dict(params), comes_again))

    @property
    def region(self) -> tuple[OutcomeConstraint, ...]:
        """Where the search was steered: bounds on objectives; none if it was not."""
        return self._observations.region

    def steer(self, region: Sequence[OutcomeConstraint]) -> None:
        """Look for outcomes within these bounds on objectives from now on, instead of those within earlier ones.

        The sampler is told every outcome again, by how much it misses the region. A region is a preference, as a
        constraint of the spec is.
        """
        if tuple(region) != self.region:
            self._take_in()
            self._write({"event": "steer", "region": [str(one) for one in region]})
            self._steer(region)

    def report(self, point: Point) -> None:
        """Take in an epoch, with the epsilon that its trial reported."""
        self._observations.add(point)

    def finish(self, trial: str, *, failed: bool = False) -> None:
        """Tell the sampler how an open trial ended; once.

        A trial counts with those of its epochs that are on the front of all trials now, or with its last one. One that
        failed, or has no epoch with a number for every objective, counts as failed.
        """
        if trial in self.open:
            self._take_in()
            told = [] if failed else self._observations.of(trial, self._kind.told_epochs)
            self._write({"event": "tell", "trial": trial, "outcomes": told})
            self._tell(trial, told)

    def _prepare(self) -> None:
        if self._kind.slow and self._numbered < self._to_come:
            given = self._first.popleft() if self._first else None
            work = self._thread.submit(self._propose, given)
            self._coming = work, given

    def _take_in(self) -> None:
        """Wait for the proposal that is being worked out, before anything else is asked or told."""
        if self._coming is not None:
            (work, given), self._coming = self._coming, None
            self._ready = self._opened(*work.result(), given=given)

    def _own_sampler(self) -> optuna.samplers.BaseSampler:
        return self._kind.for_trial(self._seed, self._numbered + 1)

    def _ask(self, given: _Enqueued | None) -> str:
        return self._opened(*self._propose(given), given=given)

    def _propose(self, given: _Enqueued | None) -> Proposal:
        return self._study.propose(self._own_sampler(), None if given is None else given.params)

    def _opened(self, trial: optuna.Trial, proposal: dict[str, Scalar], *, given: _Enqueued | None) -> str:
        self._numbered += 1
        name = name_trial(self._numbered)
        row: _AskRow = {"event": "ask", "trial": name, "params": dict(trial.params)}
        if given is not None:
            row |= {"given": given.params, "comes_again": given.comes_again}
        self._write(row)
        self._trials[name], self.open[name] = trial, proposal
        self.proposals[name] = proposal
        self._observations.open(name)
        return name

    def _tell(self, trial: str, outcomes: Sequence[Outcome]) -> None:
        asked = self._trials.pop(trial)
        del self.open[trial]
        self._observations.close(trial)
        self._study.tell(asked, outcomes)

    def _learn(self, params: Mapping[str, Scalar], outcome: Outcome) -> None:
        trial, _ = self._study.propose_given(params)
        self._study.tell(trial, [outcome])

    def _steer(self, region: Sequence[OutcomeConstraint]) -> None:
        self._observations.region = tuple(region)
        self._study, renewed = self._study.judged_again(self._observations.judge)
        self._trials = {name: renewed[trial.number] for name, trial in self._trials.items()}

    def _take_up(self, file: JsonlFile) -> None:
        for row in file.read():
            self._replay(cast(_Row, row))
        self.asked = self._numbered
        self._journal = file

    def _replay(self, row: _Row) -> None:
        if row["event"] == "ask":
            self.skip(trial_number(row["trial"]) - 1)  # ids that were left out
            self._ask_again(row)
        elif row["event"] == "learn":
            self._learn(row["params"], row)
        elif row["event"] == "steer":
            self._steer([parse_constraint(text, self._objectives) for text in row["region"]])
        elif row["trial"] in self.open:
            self._tell(row["trial"], row["outcomes"])

    def _ask_again(self, row: _AskRow) -> None:
        given = _Enqueued(row["given"], row["comes_again"]) if "given" in row else None
        if given is not None and given.comes_again:
            with suppress(ValueError):  # it may not come again after all
                self._first.remove(given)
        if self._kind.remembers:
            trial, proposal = self._propose(given)
            if trial.params == row["params"]:
                self._opened(trial, proposal, given=given)
                return
            self._study.fail(trial)  # another version of the sampler
        self._opened(*self._study.propose_given(row["params"], self._seed), given=given)

    def _write(self, row: _Row) -> None:
        if self._journal is not None:
            self._journal.append(row)
