"""A privacy filter: trainings of any noise and length are admitted as long as they fit; what did not run is refunded.

The filter is that of Gaussian privacy (`clipless.privacy.accounting.gaussian_filter`). Its mechanisms are *blocks* of a
trial: the steps from one epoch after which the scheduler may end it to the next. A block that has begun is charged
whole; blocks that never began are given to other trials.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, pairwise
from typing import Any, ClassVar, Self

from clipless.errors import AccountingError
from clipless.privacy.accounting.gaussian_filter import GaussianFilter, needed_epsilon
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import in_one_split, scores_event
from sweeper.privacy.entries import ChargedEvents, Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores, ScoreNoise
from sweeper.privacy.exposures import Release, release_gaussian
from sweeper.privacy.pricing import FOR_ALL, Price
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._base import TEST, TRAINING, VALIDATION, Budget, Expect, Releases, Request, answer_alike
from sweeper.rounding import round_up

_ROOM = 1.0 + 1e-6  # for roundings of the costs
_SPARE_SCORES = 8  # there are as many spare releases of scores as trainings, up to this part of all
_SPARE_BLOCKS = 16  # a trial that draws more than it planned does so in blocks of this part of its plan


@dataclass(frozen=True, kw_only=True)
class Filter(Budget):
    """A budget that is kept by a privacy filter."""

    name: ClassVar[str] = "filter"
    refunds: ClassVar[bool] = True

    @classmethod
    def cut(cls, request: Request) -> Self:
        """Return the filter.

        Raises:
            AccountingError: it has no room for a single trial.
        """
        made = cls(epsilon=request.epsilon, delta=request.delta)
        trial, ends = request.trial, [request.repeats * end for end in request.ends]
        blocks = [trial.with_steps(steps) for steps in begun_blocks(trial.steps, ends, trial.steps)]
        if not made.gaussian.fits(map(made.gaussian.cost, blocks)):
            raise _too_small(request, blocks)
        return made

    @classmethod
    def plan_multipliers(cls, request: Request) -> tuple[float, float]:
        """Return those at which the filter admits every release; it may cost a little more than a fixed number does.

        Of validation scores it admits some more, for those that a killed attempt loses and its successor draws again.
        """
        planned = request.planned_releases
        spare = min(request.repeats * request.trials, math.ceil(planned / _SPARE_SCORES))
        gaussian, counts = cls.cut(request).gaussian, (planned + spare, request.planned_points)
        validation, test = (
            sigma * math.sqrt(gaussian.share([gaussian.cost(scores_event(sigma, releases, request.relation))])) * _ROOM
            for sigma, releases in zip(super().plan_multipliers(request), counts, strict=True)
        )  # the square of a Gaussian mechanism's signal falls with the square of its noise
        return validation, test

    @cached_property
    def gaussian(self) -> GaussianFilter:
        """What decides."""
        return GaussianFilter(self.epsilon, self.delta)

    def __post_init__(self) -> None:
        """Refuse fields that are out of range.

        Raises:
            AccountingError: one is.
        """
        self.gaussian  # noqa: B018

    def refusal(
        self,
        entries: Sequence[Entry],
        tests: Sequence[PaidScores] = (),
        selection: Terms | None = None,  # noqa: ARG002
    ) -> str | None:
        """Return why the filter does not admit the last of these trainings, or of these releases of test scores.

        Trainings that ended early count with what they ran, and with the scores that they made where that is known.

        Guarantees:
            Where a row is in one split by a rule of its own, what is admitted of each split adds up to no more than the
            budget; otherwise all of it together does.
        """
        scores = list(_scores_of(entries))
        paid = [*(entry.scores for entry in entries if entry.scores is not None), *tests]
        splits = [list(_blocks_of(entries)), scores, [one.event for one in tests]]
        return self._refused(splits, apart=all(one.apart for one in paid))

    def test_refusal(self, entries: Sequence[Entry], tests: Sequence[PaidScores]) -> str | None:
        """Return why the filter does not admit the last of these releases, beside trainings that ran or are open."""
        return self.refusal(entries, tests)

    def _refused(self, splits: Sequence[Sequence[PoissonGaussian]], *, apart: bool) -> str | None:
        every = [event for events in splits for event in events]
        groups = splits if apart and in_one_split(every) else [every]
        if all(self.gaussian.fits(map(self.gaussian.cost, events)) for events in groups):
            return None
        return f"the budget of the sweep, privacy.sweep_epsilon = {self.epsilon:g}, has no room for it"

    @property
    def decided_epsilon(self) -> float:
        """The budget: the filter decides on each release of a split."""
        return self.epsilon

    def plan_releases(
        self,
        noise: ScoreNoise | None,
        expect: Expect,  # noqa: ARG002
    ) -> Releases:
        """Return no release of each split that the filter may admit some of."""
        return dict.fromkeys([TRAINING] if noise is None else [TRAINING, VALIDATION, TEST], ())

    def share(self, entries: Sequence[Entry]) -> float:
        """Return the share of the budget that is spent, or promised to trials that run."""
        return self.gaussian.share(map(self.gaussian.cost, _blocks_of(entries)))

    def prices(self, charged: ChargedEvents, delta: float, *, tight: bool = False) -> dict[str, Price]:  # noqa: ARG002
        """Price the budget, whatever was spent of it."""
        epsilon = self.epsilon if delta >= self.delta else math.inf
        cost = (
            f"epsilon {round_up(epsilon)} at delta {delta!r}, {FOR_ALL}, however results are used and however many "
            "trials there are: the budget of the sweep, kept by a privacy filter (Smith and Thakurta 2022, arXiv "
            "2210.17520)."
        )
        return answer_alike(Price(epsilon=epsilon, delta=delta, events=len(charged.training), fixed=True), cost)

    def release(self, charged: ChargedEvents, *, tight: bool = False) -> Release:  # noqa: ARG002
        """Return a Gaussian of the budget's signal, up to its slack."""
        return release_gaussian(self.gaussian.budget)

    def in_words(self, delta: float, expected: Callable[[], Price | None]) -> str:  # noqa: ARG002
        """Return the price, and what keeps it."""
        return (
            f"Price: epsilon {round_up(self.epsilon)} at delta {self.delta!r}, {FOR_ALL}, however "
            "results are used. It is fixed, however many trials there are: a privacy filter refuses the trial that "
            "does not fit."
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"accounting": self.name, "epsilon": self.epsilon, "delta": self.delta}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read back what `to_json` wrote.

        Raises:
            KeyError, TypeError, AccountingError: something else.
        """
        return cls(epsilon=float(content["epsilon"]), delta=float(content["delta"]))


def begun_blocks(planned: int, ends: Sequence[int], drawn: int) -> Iterator[int]:
    """Yield the lengths of the blocks that a trial has begun.

    Where one block ends and the next begins depends on nothing but what was planned: after the steps of ``ends`` and of
    the plan, and from there on after equal parts of it, for what killed attempts drew again.

    Args:
        planned: steps.
        ends: after which of them the trial may be ended, increasing; it may end anywhere else too.
        drawn: steps, counted over all attempts.
    """
    spare = max(1, planned // _SPARE_BLOCKS)
    bounds = [0, *(end for end in ends if 0 < end < planned), planned]
    more = ((planned + spare * i, planned + spare * (i + 1)) for i in count())
    for start, end in chain(pairwise(bounds), more):
        if start >= drawn:
            return
        yield end - start


def _blocks_of(entries: Sequence[Entry]) -> Iterator[PoissonGaussian]:
    """Yield the blocks that trainings have begun, all planned ones of those that run.

    An attempt that goes on from steps of an earlier one draws the rest of its blocks; one that begins anew has its own.
    """
    runs: dict[str, list[Entry]] = {}
    for entry in entries:
        if not entry.kept and (run := runs.pop(entry.trial, None)) is not None:
            yield from _blocks_of_run(run)
        runs.setdefault(entry.trial, []).append(entry)
    for run in runs.values():
        yield from _blocks_of_run(run)


def _blocks_of_run(run: Sequence[Entry]) -> Iterator[PoissonGaussian]:
    first = run[0]
    for steps in begun_blocks(first.planned.steps, first.ends, sum(entry.spent.steps for entry in run)):
        yield first.event.with_steps(steps)


def _scores_of(entries: Sequence[Entry]) -> Iterator[PoissonGaussian]:
    """Yield the releases of scores that trainings have made, all planned ones while that is not known."""
    for entry in entries:
        yield from replace(entry, goes_on=True).charged_scores


def _too_small(request: Request, blocks: Sequence[PoissonGaussian]) -> AccountingError:
    event = request.trial
    needed = needed_epsilon(blocks, request.delta)
    needs = f"needs {needed:g}" if math.isfinite(needed) else "costs more than any"
    return AccountingError(
        f"Expected an epsilon with room for one training, got epsilon={request.epsilon!r} at delta={request.delta!r}, "
        f"where a training of {event.steps} steps at sampling rate {event.sampling_rate:g} with noise multiplier "
        f"{event.noise_multiplier:g} {needs}; raise epsilon or the noise, or train shorter"
    )
