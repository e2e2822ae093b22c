"""What a sweep records: objectives, trials and points, as plain frozen values.

These are the rows that the runner writes, the ledger and the front are computed from, and the
dashboards read. Nothing here imports Ray, Optuna, MLflow or torch.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Annotated

from clipless.privacy.events import Relation
from clipless.privacy.exposure import Risk
from sweeper.adapters import WHEN_KNOWN, EventValue
from sweeper.rounding import in_brackets, round_up

Scalar = bool | int | float | str
"""A value of one hyperparameter."""

ConfigValues = Mapping[str, Mapping[str, Scalar | Sequence[Scalar] | Mapping[str, Scalar | Sequence[Scalar]]]]
"""The resolved values of a trial's configuration by section and key, a loss with its parameters below its key."""


class Direction(enum.Enum):
    """Which way an objective improves."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"

    @property
    def sign(self) -> float:
        """By which values are multiplied so that larger is better."""
        return 1.0 if self is Direction.MAXIMIZE else -1.0


NEARLY_ALL = 0.9  # share of rows with one answer, from which on a classifier is looked at more closely,
HALF_WAY = 0.5  # and how far from chance to perfect its balanced accuracy is not, where that is said of it
MEMBERSHIP = ("membership-auroc", "membership-advantage")

PointKey = tuple[str, int, str]  # trial, epoch, and what the model was made from

MADE_FROM = {
    "quick-midpoint": "halfway between the weights of the epoch and an average of all steps, in which the weight of a "
    "step grows with the 8th power of its number",
    "slow-midpoint": "halfway between the weights of the epoch and an average of all steps, in which the weight of a "
    "step grows with its number",
}
"""What a free point was made from, in words, by name; see `sweeper.trials.free_points`."""


def described(made_from: str) -> str:
    """Return in words what a free point was made from; a name of another version stays a name."""
    return MADE_FROM.get(made_from, f"the {made_from} of the iterates")


@dataclass(frozen=True, slots=True)
class Objective:
    """One axis of the front, such as ``epsilon``, ``accuracy`` or ``certified@R``, or a metric beside them."""

    name: str
    direction: Direction

    @classmethod
    def named(cls, name: str) -> "Objective":
        """Epsilon and what an attacker gains are better when smaller; everything else when larger."""
        return cls(name, Direction.MINIMIZE if name in ("epsilon", *MEMBERSHIP) else Direction.MAXIMIZE)


class TrialStatus(enum.Enum):
    """How a trial stands or ended."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"  # ended early by a decision of the scheduler or a budget
    FAILED = "failed"  # raised, or reported a NaN
    INTERRUPTED = "interrupted"  # the sweep was interrupted


class SweepStatus(enum.Enum):
    """How a sweep stands; its ``sweep.json`` says running or how it ended, only a service knows the others."""

    QUEUED = "queued"  # waits for its turn, for the pause after a driver's death, or until one can be started
    STARTING = "starting"  # its driver has not written the sweep's file yet
    RUNNING = "running"
    WAITING = "waiting"  # for the cluster: its head does not answer, and no driver is seen
    STOPPING = "stopping"
    COMPLETED = "completed"
    STOPPED = "stopped"  # by a request, a limit, or a rule of the sweep
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"  # its file says that it runs, but no driver is known

    @property
    def is_end(self) -> bool:
        """Whether nothing more happens without a request."""
        return self in (SweepStatus.COMPLETED, SweepStatus.STOPPED, SweepStatus.FAILED, SweepStatus.INTERRUPTED)


class RehearsalSource(enum.Enum):
    """Which rows configurations are rehearsed on before the first trial."""

    PUBLIC = "public"  # validation rows that are declared public
    SKETCH = "sketch"  # synthetic rows, drawn from a private sketch of the training rows

    @property
    def in_words(self) -> str:
        """The rows: every message and page has them from here."""
        return {RehearsalSource.PUBLIC: "public rows", RehearsalSource.SKETCH: "synthetic rows of a private sketch"}[
            self
        ]

    @property
    def spent_in_words(self) -> str:
        """What the sweep has spent before its first trial."""
        more = {RehearsalSource.PUBLIC: "", RehearsalSource.SKETCH: " beside the sketch"}[self]
        return f"nothing{more} is spent yet"

    @property
    def cost_in_words(self) -> str:
        """What rehearsals do to the price of the sweep."""
        return {RehearsalSource.PUBLIC: "cost nothing", RehearsalSource.SKETCH: "cost nothing beside the sketch"}[self]


def name_trial(number: int) -> str:
    """Return the id of the trial of that number in its sweep, from 1."""
    return f"t{number:04d}"


def trial_number(trial: str) -> int:
    """Return the number of a trial in its sweep, from 1, by its id.

    >>> trial_number("t0007")
    7
    """
    return int(trial.removeprefix("t"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorePlan:
    """The noise of scores of private rows, as a trial plans it; see `sweeper.privacy.evaluation`."""

    names: tuple[str, ...]  # of the scores that are released together
    noise_multiplier: float  # sigma of one release
    apart: bool  # whether a row is in one split by a rule of its own
    std: Mapping[str, float]  # standard deviation of the noise of each score, by split
    rows: Mapping[str, int]  # N, the public number of rows, by split
    epochs: tuple[int, ...]  # whose scores are released, from 1 on
    # of a trial that a private selection chose: the mean of the secret number of candidates, by the name of the score
    best_of: Annotated[Mapping[str, float] | None, WHEN_KNOWN] = None
    # the noise of whole curves of test rows, which are released in place of their scores; see
    # `sweeper.privacy.evaluation.curve_noise.CurveNoise`
    curves: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """What a trial plans before it trains: `clipless.plans.plan.Plan` as a record, and what it costs.

    The others are as in `clipless.plans.plan.Plan`.
    """

    method: str
    population: int
    batch_size: float
    sampling_rate: float
    steps_per_epoch: int
    preliminary_steps: int
    epochs: int
    noise_multiplier: float
    delta: float
    relation: Relation
    allocation: str
    sensitivity_fraction: float
    clip_norm: float | None
    follow_weights: bool
    clipping: Mapping[str, object]
    count_std: float
    freezing: Mapping[str, object] | None
    sensitivities: Mapping[str, float]
    noise_stds: Mapping[str, float]
    # what one training spends; a trial of several repeats spends it as often
    event: EventValue
    epsilon_curve: tuple[float, ...]  # claimed epsilon after each epoch
    accountants: Mapping[str, tuple[float, ...]]  # bounds of each accountant after each epoch
    repeats: int
    secure_generator: bool
    scores: Annotated[ScorePlan | None, WHEN_KNOWN] = None
    risks: tuple[Risk, ...] = ()  # what an attacker gains after each epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One configuration trained once."""

    id: str  # ``t0007``; unique within the sweep
    config: ConfigValues
    plan: TrialPlan | None = None  # what it planned, ``None`` before that
    run_id: str | None = None  # MLflow run, when tracking is on
    # the ``node`` and ``device`` that trained it last; empty before its first plan
    placed: Mapping[str, str] = field(default_factory=dict)
    status: TrialStatus = TrialStatus.RUNNING  # how the trial stands or ended, and ``reason`` in one sentence
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts:
    """How rows that may be looked at were decided, class by class, as counts."""

    rows: tuple[int, ...]  # of each class
    decided: tuple[int, ...]  # for each class
    correct: tuple[int, ...]  # of each class that were decided for it

    @property
    def recalls(self) -> tuple[float | None, ...]:
        """Share of the rows of each class that were decided for it, None without rows."""
        return tuple(hits / rows if rows else None for hits, rows in zip(self.correct, self.rows, strict=True))

    @property
    def precisions(self) -> tuple[float | None, ...]:
        """Share of the decisions for each class that were right, None without any."""
        return tuple(
            hits / answers if answers else None for hits, answers in zip(self.correct, self.decided, strict=True)
        )

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that have rows."""
        return fmean(recall for recall in self.recalls if recall is not None)

    @property
    def most_decided(self) -> tuple[int, float]:
        """The class that was decided for most, and the share of rows that was."""
        most = max(range(len(self.decided)), key=lambda i: self.decided[i])
        return most, self.decided[most] / sum(self.rows)

    @property
    def is_nearly_constant(self) -> bool:
        """Whether nearly every row gets one answer, and the answers hardly tell classes apart."""
        present = sum(rows > 0 for rows in self.rows)
        if present < 2:
            return False
        gained = (self.balanced_accuracy - 1 / present) / (1 - 1 / present)
        return self.most_decided[1] >= NEARLY_ALL and gained < HALF_WAY


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCurves:
    """What the released counts of two classes say of a predicted probability; bands hold at all thresholds at once."""

    thresholds: tuple[float, ...]  # of the probability of class 1, in [0, 1]
    positives: tuple[float, ...]  # released counts of rows of class 1 up to each threshold, noise and all
    negatives: tuple[float, ...]  # likewise
    false_rates: tuple[float, ...]  # from below all thresholds on, as made to increase
    false_low: tuple[float, ...]
    false_high: tuple[float, ...]
    true_rates: tuple[float, ...]  # likewise; ``*_low`` and ``*_high`` are bounds
    true_low: tuple[float, ...]
    true_high: tuple[float, ...]
    auroc: tuple[float, float, float]  # with its bounds, lower one first
    group_rows: tuple[float, ...]  # rows of each group of about equal size, by predicted probability
    group_predicted: tuple[float, ...]  # mean probability of each group
    group_rates: tuple[float, ...]  # share of class 1 in each group; ``*_low`` and ``*_high`` bound it among these rows
    group_low: tuple[float, ...]
    group_high: tuple[float, ...]
    hosmer_lemeshow: float  # the statistic of these groups
    p_value: float  # the share of statistics of calibrated models under the same noise that exceed it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedCurves:
    """Curves of private test rows that were released for a point, and what is computed of them."""

    confidence: float  # of each band
    noise_multiplier: float  # sigma of all of them together
    rows: int  # the public number of test rows
    radii: tuple[float, ...]  # increasing, from 0
    # certified accuracy at each radius; ``*_low`` and ``*_high`` bound it at all radii at once
    certified: tuple[float, ...]
    certified_low: tuple[float, ...]
    certified_high: tuple[float, ...]
    scores: ScoreCurves | None = None  # of two classes; None with more


@dataclass(frozen=True, slots=True, kw_only=True)
class SmoothedCounts:
    """How smoothed certificates of test rows were made, and how many rows got none."""

    sigma: float  # of the noise, in units of radii
    alpha: float  # probability, for each row, that its certificate is wrong by the chance of the draws
    draws: int  # of each row that were counted
    selection_draws: int  # that chose the class before them
    rows: int
    abstained: int  # rows without a certificate of any class
    correct: int  # rows with one of their own class, at whatever radius


Interval = tuple[float, float]  # lower end, upper end


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyScores:
    """What was released of a point of private rows, where its values are estimates; see `sweeper.results.estimates`."""

    is_final: bool  # whether the trial is of the last stage of a budget, which has most of it
    released: Mapping[str, float]  # scores of validation rows as released, noise and all
    intervals: Mapping[str, Interval]  # of the values by name: 95 % for new rows of the same kind
    test_released: Mapping[str, float] = field(default_factory=dict)  # likewise of test rows
    test_intervals: Mapping[str, Interval] = field(default_factory=dict)


ScoreErrors = Mapping[str, tuple[float, float]]
"""By name of a score: the standard deviation of its noise, and of how many rows a share has its sampling error."""

ERROR_RULES = 1
"""By which rules this version computes the errors of scores by class; see `sweeper.store.older_scores`."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Point:
    """One model of a trial: that of an epoch, or one made from the iterates up to it."""

    trial: str  # id of the trial
    epoch: int  # 1-based; of the last iterate that the model was made from, so that its epsilon is that of this epoch
    # name of what it was made from, see `sweeper.trials.free_points`; empty for the epoch's own model
    made_from: str = ""
    # validation numbers by objective name, ``epsilon`` among them (``math.inf`` without privacy)
    values: Mapping[str, float]
    # epsilon by accountant, ``{"rdp": ..., "pld": ...}``; a missing one was not computed
    accountants: Mapping[str, float] = field(default_factory=dict)
    # what an attacker gains by one training, for a configuration and an epoch fixed in advance, as ``epsilon``
    risk: Annotated[Risk | None, WHEN_KNOWN] = None
    # what the values of a point are the means of, the outcome of each repeat by name; none without repeats
    repeats: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    test: Mapping[str, float] | None = None  # test numbers, present for points of the final front only
    # how test rows were decided by class; present beside test numbers of rows that are not private
    classes: Annotated[ClassCounts | None, WHEN_KNOWN] = None
    # of test rows, present beside test numbers where these are read off released curves
    curves: Annotated[ReleasedCurves | None, WHEN_KNOWN] = None
    # present beside test numbers that are smoothed certificates
    smoothed: Annotated[SmoothedCounts | None, WHEN_KNOWN] = None
    model: str | None = None  # path of the saved model relative to the sweep folder, if kept
    # of noisy scores whose errors depend on what was released; of the others the plan of the trial knows them
    errors: Annotated[ScoreErrors | None, WHEN_KNOWN] = None
    test_errors: Annotated[ScoreErrors | None, WHEN_KNOWN] = None  # likewise of test numbers
    error_rules: Annotated[int | None, WHEN_KNOWN] = None  # `ERROR_RULES` of these errors; none of earlier versions
    # present where values and test numbers are estimates from noisy scores
    noisy: Annotated[NoisyScores | None, WHEN_KNOWN] = None

    @property
    def key(self) -> PointKey:
        """Identity within the sweep."""
        return (self.trial, self.epoch, self.made_from)

    @property
    def name(self) -> str:
        """Identity as one text, for names of files: ``t0007-12``, or with what it was made from behind it.

        >>> Point(trial="t0007", epoch=12, made_from="slow-midpoint", values={}).name
        't0007-12-slow-midpoint'
        """
        return "-".join(map(str, filter(None, self.key)))

    @property
    def label(self) -> str:
        """Identity in words.

        >>> Point(trial="t0007", epoch=12, made_from="slow-midpoint", values={}).label
        't0007, epoch 12, slow-midpoint'
        """
        return f"{self.trial}, epoch {self.moment}"

    @property
    def moment(self) -> str:
        """The epoch, and what the model was made from, in words: identity within the trial."""
        return ", ".join(map(str, filter(None, self.key[1:])))

    @property
    def is_final(self) -> bool:
        """Whether noisy scores judge it and its trial is of the last stage of a budget."""
        return self.noisy is not None and self.noisy.is_final

    def __repr__(self) -> str:
        """Return which point it is and its scores, those on test rows first.

        >>> Point(trial="t0007", epoch=12, values={"epsilon": 2.98769, "accuracy": 0.73946}, test={"accuracy": 0.7})
        Point(t0007, epoch 12: test accuracy 0.700, validation accuracy 0.739, own epsilon 2.988)
        """
        tested, own = self.test or {}, self.values.get("epsilon")
        scores = [f"test {name} {value:.3f}{in_brackets(self.test_interval(name))}" for name, value in tested.items()]
        scores += [
            f"validation {name} {value:.3f}{in_brackets(self.interval(name))}"
            for name, value in self.values.items()
            if name != "epsilon"
        ]
        scores += [] if own is None else [f"own epsilon {round_up(own)}"]
        return f"Point({self.label}: {', '.join(scores)})"

    def interval(self, name: str) -> Interval | None:
        """Return the interval of a value, ``None`` where it has no noise."""
        return None if self.noisy is None else self.noisy.intervals.get(name)

    def test_interval(self, name: str) -> Interval | None:
        """Return the interval of a test number, ``None`` where it has no noise."""
        return None if self.noisy is None else self.noisy.test_intervals.get(name)

    def deviation(self, name: str) -> float | None:
        """Return the standard deviation of a value over the repeats, None without several."""
        outcomes = self.repeats.get(name, ())
        return stdev(outcomes) if len(outcomes) > 1 else None
