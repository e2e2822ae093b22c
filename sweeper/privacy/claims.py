"""What a sweep claims and on which conditions: the same sentences on the front, the report and the card."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clipless.datasets import Evaluation, Metadata
from clipless.datasets.metadata import in_feature_units, units_word
from clipless.privacy.events import PoissonGaussian
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.pricing import ENDED, OF_COPY, Price, state_unproven
from sweeper.records import Objective
from sweeper.rounding import exactly

if TYPE_CHECKING:
    from sweeper.privacy.evaluation.paid_scores import ScoreNoise
    from sweeper.specification.search import SmoothingPlan

TRUSTED_MACHINE = (
    "The guarantee covers the trained weights and what is computed from them, not what an observer of the "
    "training machine could see: timing, memory, drawn batches, gradients before the noise."
)
FLOATING_NOISE = (
    "The noise is drawn in floating point. What is released is rounded so coarsely that it differs from exact noise by "
    "a probability below 1e-7 for a billion numbers, which delta does not include."
)
CHOSEN_POINT = (
    "The own epsilon of a point holds for a configuration and an epoch that were fixed in advance. A model chosen by "
    "scores costs the price of the sweep. Choices made outside this sweep (earlier sweeps on the same data, ranges "
    "tried by hand) are not in it and cost more."
)
FIXED_COURSE = (
    "The price of a sweep composes the trainings that were charged as if their number, noise and length had been fixed "
    "before any result was seen. Where results chose them (proposals that learn, with an open epsilon, "
    "noise_multiplier, epochs or batch_size; a sweep that was ended early or extended because of its results), the "
    "composition is fully adaptive, and the true price can be larger (Rogers et al. 2016, arXiv 1605.08294; Whitehouse "
    "et al. 2023, arXiv 2203.05481)."
)
CERTIFIED_MODEL = (
    "A certified radius is one of the model, not of privacy; it holds for a float64 forward pass of the saved model."
)
STANDARD_CONDITIONS = (TRUSTED_MACHINE, FLOATING_NOISE, CHOSEN_POINT, FIXED_COURSE, CERTIFIED_MODEL)
POINT_WITHIN_BUDGET = (
    "The own epsilon of a point is that of one training, for a configuration and an epoch fixed in advance. A model "
    "that was chosen by scores costs the price of the sweep, which its budget fixed before any row was read: it holds "
    "however results were used. Choices made outside this sweep (earlier sweeps on the same data, ranges tried by "
    "hand) are not in it and cost more."
)
BUDGET_CONDITIONS = (TRUSTED_MACHINE, FLOATING_NOISE, POINT_WITHIN_BUDGET, CERTIFIED_MODEL)
INJECTED_GENERATOR = "No guarantee: batches and noise came from an injected generator, not from the secure one."
LARGE_DELTA = (
    "The accepted delta = {delta!r} is not below 1/N for N = {population}: the guarantee permits publishing "
    "one training row outright."
)
MEMBERSHIP = (
    "Membership inference compared training rows with validation rows: its scores are releases of training rows, which "
    "no epsilon here covers."
)
EARLY_ENDS = (
    "Trials were ended early by their validation scores. If you take the last epoch of such a trial because it ended "
    "there, these scores have chosen it: that costs the epsilon of all planned epochs."
)
WARM_START = (
    "Proposals were steered by the trials of an earlier sweep, {source}. What that sweep spent is in its own ledger "
    "and not in this one: if both read the same data, they cost the composition of both."
)
WARM_START_COPY = (
    "The folder of {source} may be a copy, or may have been put back from one: what that sweep drew since is in no "
    "ledger, and comes on top of that composition."
)
WARM_START_EXPERIMENT = (
    "Proposals were steered by the trials of {sweeps} in the MLflow experiment {name}. What each sweep spent is in its "
    "own ledger and not in this one: those that read the same data cost the composition of all. What steered those "
    "sweeps, and whether one is a copy whose ledger lacks something, is said by their own claims."
)
UNPAID = (
    "Proposals were steered by scores that nobody paid for: {source} is exploratory, and so is this sweep, whatever "
    "its own data declare."
)
UNBOUNDED = (
    "Trials of {source} were trained without privacy: if they read the data of this sweep, nothing bounds what both "
    "reveal of a row, whatever price this sweep states."
)
NOISY_SCORES = (
    "Scores of validation and test rows, which are private, carry Gaussian noise: of standard deviation "
    "{validation:.3g} on validation rows and {test:.3g} on test rows. Shown are estimates that follow from the "
    "released scores and that noise, with intervals. {certified}Each release is in the ledger, whose prices are of "
    "training and scores together; the epsilon of a point is of its training alone."
)
CERTIFIED_EXCEEDS = "A certified accuracy may exceed the accuracy by it. "
SPLITS_TOGETHER = (
    "The data set does not say that the split of each row depends on that row alone: training and scores are charged "
    "as their composition, and the guarantee is for data whose other rows stay in their splits."
)
SMOOTHED = (
    "smoothed@R is another kind of certificate than certified@R: of the smoothed classifier, which decides for the "
    "class that the saved model most often decides for under Gaussian noise of standard deviation {sigma:g} on its "
    "input. It is probabilistic: for each row it is wrong with probability at most {alpha:g} over the draws of the "
    "noise, {draws} for each of at most {rows} validation rows and {test_draws} for each of at most {test_rows} test "
    "rows. Of N rows that are scored, at most {alpha:g} N are expected to be counted wrongly. A row on which it "
    "abstains is not counted."
)
REHEARSED = (
    "The validation rows, as declared: what to train was chosen by scores of them and by trainings on them, which are "
    "not charged."
)
SKETCHED = (
    "What to train was chosen by trainings on synthetic rows, drawn from a private sketch of the training rows: noisy "
    "counts, means and second moments of each class, one release with noise multiplier {noise:.4g}, which is in the "
    "ledger and in the price of the sweep. Nothing promises that synthetic rows show what the training rows would."
)
COPIED = (
    "The folder of the sweep may be a copy, or may have been put back from one: what the sweep drew since the copy was "
    "made is in no ledger, and comes on top of every price."
)
EXPLORATORY = "Exploratory: no guarantee"
_PLACES = re.compile(  # of earlier sweeps, in `WARM_START` and `UNPAID` of earlier versions
    r"(?<=of an earlier sweep, ).*/(?=[^/]+/?\. What that sweep spent)"
    r"|(?<=that nobody paid for: )(?!a sweep of the MLflow experiment ).*/(?=[^/]+/? is exploratory)"
)


@dataclass(frozen=True, slots=True)
class Steering:
    """What the trials of earlier sweeps, from which proposals learn, add to a claim."""

    conditions: tuple[str, ...]
    exploratory: bool = False

    @classmethod
    def by_sweep(cls, folder: Path, claim: "Claim | None" = None, *, unbounded: bool = False) -> "Steering":
        """Return what one earlier sweep adds: what steered that one steers this one too.

        Its folder is named; readers may not know where that lies. ``unbounded``: it has trials without privacy.
        """
        source = folder.resolve().name
        exploratory = claim is not None and claim.exploratory
        before = () if claim is None else claim.steered
        is_copy = claim is not None and COPIED in claim.conditions
        marks = (WARM_START_COPY,) * is_copy + (UNPAID,) * exploratory + (UNBOUNDED,) * unbounded
        return cls((*(one.format(source=source) for one in (WARM_START, *marks)), *before), exploratory)

    @classmethod
    def by_experiment(cls, name: str, *, sweeps: int, exploratory: bool, unbounded: bool = False) -> "Steering":
        """Return what the runs of an MLflow experiment add."""
        counted = WARM_START_EXPERIMENT.format(name=name, sweeps="1 sweep" if sweeps == 1 else f"{sweeps} sweeps")
        unpaid = (UNPAID.format(source=f"a sweep of the MLflow experiment {name}"),) if exploratory else ()
        without = (UNBOUNDED.format(source=f"the MLflow experiment {name}"),) if unbounded else ()
        return cls((counted, *unpaid, *without), exploratory)


@dataclass(frozen=True, slots=True)
class AccountClaim:
    """The claim of an account: one price of all that is ever released through it, as long as nobody raises it.

    Attributes:
        name: of the account.
        epsilon, delta: its budget when the sweep was planned.
    """

    name: str
    epsilon: float
    delta: float

    @property
    def condition(self) -> str:
        """The claim for a sweep and all others on the same rows together, in two sentences."""
        return self._condition(", unless its owner raises it, which it records")

    def _condition(self, revoked: str) -> str:
        return (
            f"{self._opening} Everything that is ever released through it costs epsilon {exactly(self.epsilon)} at "
            f"delta {self.delta!r} together{revoked}; what is released from the same rows outside of it comes on top."
        )

    @property
    def _opening(self) -> str:
        return f"Other sweeps may be charged to account {self.name!r} too."

    def without(self, conditions: Iterable[str]) -> tuple[str, ...]:
        """Return conditions without what they say of this account, with whatever budget."""
        return tuple(one for one in conditions if not one.startswith(self._opening))

    def is_stated(self, conditions: Sequence[str]) -> bool:
        """Whether conditions say this of the account, in the words of this or an earlier version, and nothing else."""
        said = [one for one in conditions if one not in self.without(conditions)]
        return said in ([self.condition], [self._condition("")])

    def to_columns(self) -> dict[str, str | float]:
        """Return it as columns of a table."""
        return {"account": self.name, "account.epsilon": self.epsilon, "account.delta": self.delta}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What holds for every point of a sweep."""

    data: str
    population: int  # N, number of privacy units in the training split; public
    unit: str  # the privacy unit, ``row`` or the column that identifies it
    evaluation: str  # what the rows held back are: public, private or exploratory
    radius_unit: str  # units of certified radii
    exploratory: bool  # true when there is no guarantee; marks every figure, card and run
    secure_generator: bool
    public: tuple[str, ...]  # sentences: what was taken as public, and why
    conditions: tuple[str, ...]  # sentences: what is not guaranteed
    steered: tuple[str, ...] = ()  # those of them that say which earlier sweeps steered the proposals
    baselines: Baselines = field(default_factory=Baselines)  # what scores are compared with
    deployment: Mapping[str, str] = field(default_factory=dict)  # what the spec says of it beside the computation
    account: AccountClaim | None = None  # of the data, where the sweep is charged to one
    chosen: tuple[str, ...] = ()  # what results chose, or may have chosen, that the price takes as fixed before them

    def __post_init__(self) -> None:
        """Name the folders of earlier sweeps without where they lie, which earlier versions recorded."""
        for name in ("conditions", "steered"):
            object.__setattr__(self, name, tuple(_PLACES.sub("", one) for one in getattr(self, name)))

    @classmethod
    def about(
        cls,
        declared: Metadata,
        population: int,
        *,
        delta: float,
        secure_generator: bool = True,
        reads_training_rows: bool = False,
        ends_trials_early: bool = False,
        has_budget: bool = False,
        chosen: Sequence[str] = (),
        of_spending: Sequence[str] = (),
        rehearses: bool = False,
        sketch: PoissonGaussian | None = None,
        taken: Sequence[str] = (),
        noise: "ScoreNoise | None" = None,
        smoothing: "SmoothingPlan | None" = None,
        baselines: Baselines | None = None,
        deployment: Mapping[str, str] | None = None,
    ) -> "Claim":
        """Return the claim of a sweep on declared data.

        ``ends_trials_early``: a scheduler looks at scores while trials run. ``has_budget``: a budget that was fixed
        before any row was read prices the whole sweep, so that results may be used in any way. ``chosen``: what
        proposals choose that no budget fixes. ``of_spending``: what that price rests on beside. ``rehearses``:
        configurations are trained on the validation rows. ``sketch``: on rows drawn from this release. ``taken``: what
        else is taken as public. ``noise`` is that of scores of private rows, ``smoothing`` that of smoothed
        certificates. ``deployment`` is copied.
        """
        marks = [] if secure_generator else [INJECTED_GENERATOR]
        if reads_training_rows:
            marks.append(MEMBERSHIP)
        if noise is not None:
            marks.append(NOISY_SCORES.format(**noise.stds, certified=CERTIFIED_EXCEEDS * (len(noise.shares) > 1)))
            marks += [] if noise.apart else [SPLITS_TOGETHER]
        marks += [] if smoothing is None else [SMOOTHED.format(**asdict(smoothing))]
        marks += [] if sketch is None else [SKETCHED.format(noise=sketch.noise_multiplier)]
        marks += of_spending
        if ends_trials_early and not has_budget:
            marks.append(EARLY_ENDS)
        if not delta < 1 / population:
            marks.append(LARGE_DELTA.format(delta=delta, population=population))
        baselines = baselines or Baselines(classes=declared.classes)
        taken = (*baselines.public_facts, *((REHEARSED,) if rehearses else ()), *taken)
        counted = f"The number of training {units_word(declared.unit)}, N = {population}."
        return cls(
            data=declared.name,
            population=population,
            unit=declared.unit,
            evaluation=declared.evaluation.value,
            radius_unit=declared.radius_unit,
            exploratory=declared.evaluation is Evaluation.EXPLORATORY or not secure_generator,
            secure_generator=secure_generator,
            public=(counted, *declared.public_facts, *taken),
            conditions=(*marks, *declared.conditions, *(BUDGET_CONDITIONS if has_budget else STANDARD_CONDITIONS)),
            baselines=baselines,
            deployment=dict(deployment or {}),
            chosen=tuple(chosen),
        )

    def radii_in_words(self, objectives: Iterable[Objective]) -> str:
        """Say that certified radii are in units of features; empty where they are not, or none is an objective."""
        certified = any(one.name.startswith("certified") for one in objectives)
        said = f"Certified radii are in {self.radius_unit}, not in units of the raw input."
        return said if certified and in_feature_units(self.radius_unit) else ""

    @property
    def unproven(self) -> str | None:
        """Why the price is not proven: results steer the sweep, or it may be a copy; ``None`` if it is not doubted."""
        return " ".join(filter(None, [self._of_copy, state_unproven(self.chosen)])) or None

    @property
    def _of_copy(self) -> str | None:
        return OF_COPY if COPIED in self.conditions else None

    def qualify(self, ledger: Mapping[str, Price]) -> dict[str, Price]:
        """Return prices with what is not proven of them; those that are fixed hold however results are used.

        Of a copy none does.
        """
        return {
            question: replace(price, unproven=self._of_copy if price.fixed else self.unproven)
            for question, price in ledger.items()
        }

    def with_chosen(self, *what: str) -> "Claim":
        """Return the claim of a sweep of which results chose, or may have chosen, more."""
        return replace(self, chosen=tuple(dict.fromkeys([*self.chosen, *what])))

    def steered_by(self, steering: Steering) -> "Claim":
        """Return the claim of a sweep whose proposals learn from trials of earlier ones."""
        return replace(
            self,
            exploratory=self.exploratory or steering.exploratory,
            conditions=(*steering.conditions, *self.conditions),
            steered=steering.conditions,
        )

    def of_copy(self) -> "Claim":
        """Return the claim of a sweep whose folder was copied, or put back."""
        return replace(self, conditions=tuple(dict.fromkeys([COPIED, *self.conditions])))

    def resumed_from(self, recorded: "Claim") -> "Claim":
        """Return this claim with every mark and condition of the one that the sweep was started with.

        That it was ended early is no longer so, nor that an account had another budget.
        """
        before = recorded.conditions if self.account is None else self.account.without(recorded.conditions)
        return replace(
            self,
            exploratory=self.exploratory or recorded.exploratory,
            secure_generator=self.secure_generator and recorded.secure_generator,
            conditions=tuple(dict.fromkeys([*before, *self.conditions])),
            steered=tuple(dict.fromkeys([*recorded.steered, *self.steered])),
            chosen=tuple(dict.fromkeys(one for one in (*recorded.chosen, *self.chosen) if one != ENDED)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        baselines = asdict(self.baselines) | {"classes": list(self.baselines.classes)}
        account = None if self.account is None else asdict(self.account)
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content |= {"baselines": baselines, "account": account}
        return content | {name: list(getattr(self, name)) for name in ("public", "conditions", "steered", "chosen")}
