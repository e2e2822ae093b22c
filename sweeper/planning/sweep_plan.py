"""The plan of a sweep: every fact that its rooms must agree on, as one frozen value that is made once.

`make.py` makes it of a spec and what is declared of the data; nobody who runs, records or resumes a sweep asks the spec
again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from clipless.datasets import InputFormat
from clipless.plans.plan import Plan
from clipless.privacy.events import PoissonGaussian
from sweeper.account.entries import Side
from sweeper.privacy.claims import Claim
from sweeper.privacy.entries import ChargedEvents
from sweeper.privacy.pricing import Price
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending import Spending
from sweeper.privacy.spending._composition import compose
from sweeper.records import RehearsalSource, Scalar
from sweeper.rounding import number_of
from sweeper.specification.addresses import AccountAddress
from sweeper.specification.left_out import Default
from sweeper.specification.search import SearchSettings
from sweeper.specification.settings import PrivacySettings, ResourceSettings
from sweeper.store.manifest import Course
from sweeper.trials.settings import TrialSettings

_FEW_EVENTS = 16  # whose composition takes seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSpec:
    """What the folder of a sweep says of its spec.

    Attributes:
        name: of the sweep.
        values: all of them, defaults filled in, as JSON values.
        overrides: those that the file does not have, by dotted name.
        digest: of everything that it says.
        source: the file, for messages.
        text: of ``spec.yaml``: that of the file, comments and all, if that is what is run; its values otherwise.
    """

    name: str
    values: Mapping[str, Any]
    overrides: Mapping[str, Any]
    digest: str
    source: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAccount:
    """What a sweep plans to take from the account of its data.

    Attributes:
        address: of the account.
        unit: the privacy unit of the data.
        split: what says the side of each row, ``None`` where rows are not assigned one by one.
        events: every release, by the side that it reads; empty where a filter decides on the way.
        filter_epsilon: what that filter may spend on each side, ``None`` without one.
        selection: a private selection beside these events, ``None`` without one.
    """

    address: AccountAddress
    unit: str
    split: str | None
    events: Mapping[Side, tuple[PoissonGaussian, ...]]
    filter_epsilon: float | None = None
    selection: Terms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """What a sweep does, and what that may cost; nothing of it depends on a row.

    Attributes:
        spec: as it is recorded.
        privacy: what is promised: delta and relation of every event, the effort of audits.
        search: how configurations are chosen, and how long.
        resources: what one trial may use, and how many run at once.
        shared: what all trials share.
        population: N, the number of training rows.
        trials: how many are run; the mean of their number, rounded up, where a private selection draws it.
        rehearsals: configurations that are rehearsed before the first trial.
        first: configurations to try first, as values of open dimensions by name.
        spending: how the sweep spends, cut before any row is read.
        claim: what holds for every point, and on which conditions.
        stated: the price in one line, before anything is known to be unproven of it; of a sweep that goes on never less
            than what is spent.
        input: how rows are encoded; ``None`` where its data are not at hand.
        chosen: what the spec left to the data, and why it became what it is.
        account: what it plans to take from the account of its data, ``None`` where its spec names none.
    """

    spec: RecordedSpec
    privacy: PrivacySettings
    search: SearchSettings
    resources: ResourceSettings
    shared: TrialSettings
    population: int
    trials: int
    rehearsals: int
    first: tuple[dict[str, Scalar], ...] = ()
    spending: Spending
    claim: Claim
    stated: str = ""
    input: InputFormat | None = None
    chosen: tuple[Default, ...] = ()
    account: PlannedAccount | None = None

    @property
    def name(self) -> str:
        """The name of the sweep."""
        return self.spec.name

    @property
    def announcement(self) -> str:
        """The name of the sweep, `price_in_words` and how many configurations come before its trials, in one line."""
        return f"{self.name}: {' '.join(filter(None, [self.price_in_words, self._rehearsals_in_words]))}"

    @property
    def _rehearsals_in_words(self) -> str:
        """How many configurations are rehearsed and how many trials follow, empty without rehearsals."""
        if not self.rehearsals:
            return ""
        rehearsed = f"{number_of(self.rehearsals, 'configuration')} on {self.rehearsed_on.in_words}"
        return f"It rehearses {rehearsed}, then trains {number_of(self.trials, 'trial')}."

    @property
    def price_in_words(self) -> str:
        """The price before anything is spent, and what is not proven of it."""
        return " ".join(filter(None, [self.stated, self.claim.unproven]))

    @property
    def advice(self) -> str:
        """What is said of its objectives before it begins, empty where nothing is."""
        return self.claim.baselines.advice(one.name for one in self.shared.objectives)

    @property
    def constant_scores(self) -> Mapping[str, float]:
        """What a constant prediction reaches on validation rows, by the objectives of which that is known."""
        return self.claim.baselines.constants(one.name for one in self.shared.objectives)

    @property
    def proposed(self) -> int:
        """How many trials the search proposes by itself; stages and rehearsals promote the others."""
        return 0 if self.rehearsals else next(iter(self.spending.stage_trials), self.trials)

    @property
    def enqueued(self) -> tuple[dict[str, Scalar], ...]:
        """The configurations that the search tries first: none where they are rehearsed first, among the others."""
        return () if self.rehearsals else self.first

    @property
    def rehearsed_on(self) -> RehearsalSource:
        """The rows that configurations are rehearsed on."""
        return RehearsalSource.PUBLIC if self.spending.sketch is None else RehearsalSource.SKETCH

    @property
    def course(self) -> Course:
        """What everybody may know of how the sweep goes."""
        stages, noise = self.spending.stage_trials, self.shared.noise
        return Course(
            trials=self.trials,
            stages=stages,
            rehearsals=self.rehearsals,
            rehearsed_on=self.rehearsed_on,
            can_be_steered=bool(self.search.learns or stages or self.rehearsals),
            announcement=self.announcement,
            score_noise=None if noise is None else (noise.noise_multiplier, noise.test_noise_multiplier),
        )

    def expected_events(self, plans: Sequence[Plan]) -> tuple[list[PoissonGaussian], list[PoissonGaussian]]:
        """Return what trials would spend on training rows, and on scores, if each spent what one of the plans does."""
        noise, repeats = self.shared.noise, self.shared.repeats
        every = [plans[i % len(plans)] for i in range(self.trials)]
        events = [plan.event().with_steps(repeats * plan.event().steps) for plan in every]
        return events, [] if noise is None else [noise.paid(repeats * plan.epochs).event for plan in every]

    def expected_price(self, plans: Sequence[Plan]) -> Price | None:
        """Price all trials as if each spent what the dearest of these plans does; ``None`` without plans.

        It is computed as closely as the price of a sweep that has ended. Scores of test rows, whose number is not known
        before, are not in it.
        """
        found = self._dearest(plans)
        return None if found is None else found[1]

    def resumed_price(self, charged: ChargedEvents, plans: Sequence[Plan], trials: int) -> Price | None:
        """Price what is charged together with so many trials, as if each spent what the dearest of these plans does.

        ``None`` where there are trials and no plans. Of few distinct events it is computed as closely as
        `expected_price`, of more, which would take minutes, as an upper bound.
        """
        splits = [list(charged.training), list(charged.validation), list(charged.test)]
        if trials:
            to_come = replace(self, trials=trials)
            found = to_come._dearest(plans)
            if found is None:
                return None
            training, scores = to_come.expected_events([found[0]])
            splits[0] += training
            splits[1] += scores
        tight = len({event for split in splits for event in split}) <= _FEW_EVENTS
        return compose(splits, self.privacy.delta, tight=tight, apart=charged.apart and self._apart)

    @property
    def _apart(self) -> bool:
        return self.shared.noise is None or self.shared.noise.apart

    def _dearest(self, plans: Sequence[Plan]) -> tuple[Plan, Price] | None:
        """Return the plan that makes all trials cost most, with that price; ``None`` without plans."""
        priced = [
            (plan, compose(self.expected_events([plan]), self.privacy.delta, tight=True, apart=self._apart))
            for plan in {plan.event(): plan for plan in plans}.values()
        ]
        return max(priced, key=lambda one: one[1].epsilon, default=None)
