"""The JSON answers of the API, as `/api/openapi.json` describes them.

Numbers that are infinite or undefined are texts, as in ``front.json``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from clipless.datasets import Evaluation
from clipless.privacy.exposure import Risk
from sweeper.privacy.card.content import Answer, CardContent, ModelPrice, Number, PriceFacts, Values
from sweeper.records import (
    ClassCounts,
    ConfigValues,
    Interval,
    NoisyScores,
    Objective,
    ReleasedCurves,
    Scalar,
    SmoothedCounts,
    SweepStatus,
)
from sweeper.results.front_record import FrontTrial
from sweeper.service.responses.accounts import AccountQuoted
from sweeper.store.actions import ActionKind

if TYPE_CHECKING:
    from sweeper.planning import check


class SweepState(Answer):
    """How a sweep stands after a request."""

    id: str
    state: SweepStatus
    url: str = Field(description="Its address in the API.")


class Enqueued(SweepState):
    """A configuration that is tried next."""

    values: Mapping[str, Scalar] = Field(description="Its open hyperparameters by dotted name.")
    waits: bool = Field(description="Whether it waits until the sweep is resumed or extended.")


class Steered(SweepState):
    """A search that was steered."""

    region: Sequence[str] = Field(description="Bounds on objectives; none where it searches everywhere.")


class Noted(SweepState):
    """A trial that somebody said something about."""

    trial: str
    tracked: bool = Field(description="Whether its MLflow run has it too.")


class Deleted(Answer):
    """A sweep that was deleted."""

    id: str
    state: Literal["deleted"] = "deleted"
    kept: str | None = Field(description="Where its ledger is, None if it had spent nothing.")


class SweepRow(Answer):
    """One row of the list of sweeps."""

    id: str
    name: str | None
    state: SweepStatus
    status: SweepStatus | None = Field(description="As its own records say, None where there are none.")
    reason: str
    submitted: float | None = Field(description="When, in seconds since 1970; None if it was not.")
    by: str = Field(
        description="Who submitted it, by the owner of the token, else the account of the machine that ran it."
    )


class SweepPage(Answer):
    """A page of the list of sweeps."""

    sweeps: Sequence[SweepRow]
    total: int
    offset: int
    limit: int


class PointName(Answer):
    """Which point."""

    trial: str
    epoch: int
    made_from: str = ""


class FrontSummary(Answer):
    """A front in numbers."""

    objectives: Sequence[Objective]
    trials: Mapping[str, int] = Field(description="How many by status.")
    points: int
    front_points: int
    hypervolume: Number
    hypervolume_interval: Interval | None = Field(default=None, description="At 95 %, where scores are noisy.")
    knee: PointName | None
    ledger: Mapping[str, PriceFacts] = Field(description="The price: of the winner, of the front, and of all.")
    exploratory: bool


class Submitted(Answer):
    """What the service was asked about a sweep."""

    submitted: float
    by: str
    trials: int | None


class SweepDetail(Answer):
    """How a sweep stands; without records, only its state."""

    id: str
    state: SweepStatus
    trouble: str
    submission: Submitted | None
    status: SweepStatus | None = None
    reason: str = ""
    name: str | None = None
    spec: Mapping[str, Any] | None = None
    spec_hash: str | None = None
    versions: Mapping[str, str] = Field(default_factory=dict)
    started: str | None = None
    population: int | None = Field(default=None, description="Number of training rows.")
    front: FrontSummary | None = None


class PointRow(PointName):
    """A point with its values."""

    values: Values = Field(description="Validation values by objective.")
    accountants: Values
    risk: Risk | None = Field(default=None, description="What an attacker gains, if it was fixed in advance.")
    repeats: Mapping[str, Sequence[Number]]
    test: Values | None
    model: str | None = Field(description="File of the model, where it was kept.")
    classes: ClassCounts | None = None
    curves: ReleasedCurves | None = None
    smoothed: SmoothedCounts | None = Field(default=None, description="How smoothed certificates were made.")
    noisy: NoisyScores | None = Field(default=None, description="Where values are estimates from noisy scores.")


class ActionRow(Answer):
    """Something that somebody did to a sweep, or to a trial of it."""

    by: str = Field(description="Who, by the owner of the token, or the account of the machine.")
    at: str = Field(description="When: ISO 8601 in UTC.")
    kind: ActionKind
    trial: str = Field(description="Of which trial; empty where it was done to the sweep.")
    detail: str = Field(description="The text of a note, a tag and its value, a number of trials, values, or bounds.")


class ActionList(Answer):
    """What people did to a sweep, oldest first."""

    actions: Sequence[ActionRow]


class RehearsedRow(Answer):
    """A configuration that was rehearsed: no trial, without an epsilon, a model or a place on the front."""

    configuration: str
    place: int | None = Field(description="Among all of them, from 1; None without scores.")
    epoch: int | None = Field(description="Its best epoch in the first objective beside epsilon.")
    made_from: str
    values: Values = Field(description="Scores of that epoch by objective, means over its trainings.")
    hypervolume: Number | None = Field(description="Share of the box that all its epochs dominate, without epsilon.")
    trials: Sequence[str] = Field(description="Those of the sweep that train it.")
    reason: str = Field(description="Why it has no scores.")
    config: ConfigValues


class RehearsalList(Answer):
    """What was rehearsed before the first trial, best first."""

    rehearsed_on: str = Field(description="The rows that configurations are trained and scored on.")
    planned: int = Field(description="How many configurations, those included that have not ended.")
    rehearsals: Sequence[RehearsedRow]


class TrialTable(Answer):
    """The trials of a sweep, each with its end, the values of its best point and its configuration."""

    trials: Sequence[Mapping[str, Scalar | None]]


class StreamedEvent(Answer):
    """An event of a stream."""

    event: Literal["point", "trial", "status", "end"]
    id: str = Field(description="Rows of points and of trials so far: the Last-Event-ID to continue after it.")
    data: str = Field(description="JSON.")


class PointPage(Answer):
    """A page of points."""

    points: Sequence[PointRow]
    total: int
    offset: int
    limit: int


class FrontPoint(PointRow):
    """A point of the front."""

    on_front: Literal[True]


class Hypervolume(Answer):
    """The share of a box that the front dominates."""

    value: Number
    interval: Interval | None = Field(default=None, description="At 95 %, where scores are noisy.")
    reference: Values
    ideal: Values
    log_epsilon: bool


class FrontContent(Answer):
    """A front, as in ``front.json``, with its own points and trials alone."""

    schema_version: int
    sweep: str
    objectives: Sequence[Objective]
    trials: Mapping[str, FrontTrial]
    points: Sequence[FrontPoint]
    of_points: int = Field(description="How many points the sweep has in all.")
    hypervolume: Hypervolume
    knee: PointName | None = None
    ledger: Mapping[str, PriceFacts]
    claim: Mapping[str, Any]
    ledger_entries: int | None = None
    stages: Sequence[int] = ()
    refused: Mapping[str, str] = Field(default_factory=dict)


class FigureNumbers(Answer):
    """The numbers of a figure of the report."""

    figure: str
    rows: Sequence[Mapping[str, Any]]


class PickedPoint(PointName):
    """The point of best utility within conditions."""

    values: Values
    test: Values | None
    noisy: NoisyScores | None = Field(default=None, description="Where values are estimates from noisy scores.")
    price: ModelPrice | None = Field(description="What it costs, chosen by scores of the sweep.")
    config: ConfigValues
    card: CardContent
    model: str = Field(description="Its address.")


class PlannedCourse(Answer):
    """What the sweep of a spec would do, as ``sweeper check`` says it."""

    trials: int
    rehearsals: int = Field(description="Configurations that are rehearsed before the first trial.")
    rows: int = Field(description="Training rows, or units of several rows: a public number.")
    seconds: float | None = Field(description="About, on the machine of the service.")
    statement: str
    price: str = Field(description="Of the whole sweep; about, where nothing fixes it.")

    @classmethod
    def of(cls, checked: "check.CheckedSpec") -> "PlannedCourse":
        """Return it of a spec that was checked on its data."""
        return cls(
            trials=checked.plan.trials,
            rehearsals=checked.plan.rehearsals,
            rows=checked.plan.population,
            seconds=None if checked.estimate is None else checked.estimate.seconds,
            statement=checked.course,
            price=checked.plan.price_in_words,
        )


class CheckedSpec(Answer):
    """A spec that can be run."""

    name: str
    trials: int
    price: str
    epsilon: float | None = Field(description="The price, at most; null where nothing fixes it beforehand.")
    delta: float | None = Field(description="Of that price; null where the spec leaves it to its data.")
    account: AccountQuoted | None = Field(default=None, description="What it takes of the account of its data.")
    plan: PlannedCourse | None = Field(default=None, description="Where it is asked for, and the data are here.")


class DataRow(Answer):
    """A data set that is installed where the service runs."""

    name: str = Field(description="For data.name in a spec.")
    description: str


class TableRow(Answer):
    """A table that the operator of the service declared."""

    path: str = Field(description="For data.path in a spec.")
    ranges: str = Field(description="The file that declares it, for data.ranges.")
    evaluation: Evaluation
    unit: str = Field(description="The privacy unit: row, or the column that identifies it.")


class DataList(Answer):
    """What specs may name as data."""

    data: Sequence[DataRow]
    tables: Sequence[TableRow]


class Health(Answer):
    """Whether the service is well."""

    status: Literal["ok", "down"]
    down: tuple[str, ...] = Field(default=(), description="What is down.")
