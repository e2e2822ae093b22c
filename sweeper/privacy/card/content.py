"""What is in a privacy card, typed: the service answers with it, and the published schema of ``card.json`` is its own.

Numbers that are infinite or undefined are texts, as in ``front.json``.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from clipless.datasets import Evaluation
from clipless.plans.method import Method
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.exposure import Basis, Risk
from sweeper.adapters import parse
from sweeper.privacy.claims import AccountClaim
from sweeper.privacy.pricing import Price
from sweeper.records import ConfigValues, NoisyScores, ReleasedCurves

Number = Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["Infinity", "-Infinity", "NaN"]}]})]
Values = Mapping[str, Number]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Answer(BaseModel):
    """One answer of the service, a part of one, or a part of a card."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class GroupRow(Answer):
    """What several rows of one person, or several planted ones, cost together."""

    rows: int
    epsilon: Number = Field(description="At the delta of the price; infinite where nothing follows.")
    shift: float = Field(description="The most by which they move the probability of any outcome.")
    basis: Basis
    own: bool = Field(description="Whether it is of so many rows, and not derived from one by group privacy.")


class ExposureFacts(Answer):
    """What a price means to a person."""

    risk: Risk
    groups: Sequence[GroupRow]


class PriceFacts(Answer):
    """What releasing something costs."""

    epsilon: Number
    delta: float
    events: int = Field(description="How many trainings; none of what was not released.")
    statement: str
    fixed: bool = Field(description="Whether it holds however results are used.")
    exposure: ExposureFacts | None = Field(
        default=None, description="What it means to a person.", exclude_if=lambda value: value is None
    )
    unproven: str | None = Field(
        default=None,
        description="That results steer the sweep, so that the price is not proven.",
        exclude_if=lambda value: value is None,
    )

    def to_price(self) -> Price:
        """Return it as ledgers and fronts have it."""
        return parse(Price, self.model_dump())


class EventPrice(Answer):
    """What so many steps of one training cost: the smaller bound of two accountants is claimed."""

    epsilon: Number
    rdp: Number | None = Field(description="None under a relation for which it has no rule.")
    pld: Number | None
    steps: int


class ModelPrice(Answer):
    """The price of a model of the sweep."""

    epsilon: Number
    fixed: bool = Field(description="Whether it was fixed before the first result.")


class Guarantee(Answer, extra="forbid"):
    """What is claimed for the model."""

    delta: float
    relation: Relation
    unit: str = Field(description="The privacy unit: row, or the column that identifies it.")
    population: int = Field(description="Number of privacy units in the training split; public.")
    fixed_in_advance: EventPrice = Field(description="If configuration and epoch were fixed before training.")
    chosen_afterwards: EventPrice = Field(description="If the epoch was chosen by scores.")
    selected: Number | None = Field(description="Epsilon of a private selection; None where everything may leave.")
    price: ModelPrice | None
    trainings: int = Field(description="How often the trial was begun.")
    planned_epochs: int
    repeats: int
    ended_early: str | None


class PointExposures(Answer, extra="forbid"):
    """What both prices of the training mean to a person."""

    fixed_in_advance: ExposureFacts
    chosen_afterwards: ExposureFacts


class AuditRow(Answer, extra="forbid"):
    """The most that attacks of one kind attained."""

    kind: str
    epsilon: Number = Field(description="The claim that was attacked.")
    delta: float
    attained: Number
    confidence: float
    contradicted: bool


class EventRow(Answer, extra="forbid"):
    """What one whole training plans to spend."""

    kind: Literal["poisson-gaussian"]
    noise_multiplier: Number
    sampling_rate: float
    steps: int
    relation: Relation

    def to_event(self) -> PoissonGaussian:
        """Return it as accountants take it.

        Raises:
            clipless.errors.AccountingError: a value that no event can have.
        """
        return PoissonGaussian(
            noise_multiplier=self.noise_multiplier,
            sampling_rate=self.sampling_rate,
            steps=self.steps,
            relation=self.relation,
        )


class Sampling(Answer, extra="forbid"):
    """How batches are drawn."""

    kind: Literal["poisson"]
    batch_size: float
    sampling_rate: float
    steps_per_epoch: int
    preliminary_steps: int


class Noise(Answer, extra="forbid"):
    """How noise is drawn."""

    noise_multiplier: Number
    allocation: str
    secure_generator: bool


class ScheduledClipping(Answer, extra="forbid"):
    """A clipping norm that is constant, or falls on a public schedule."""

    kind: Literal["constant", "linear", "cosine"]


class QuantileClipping(Answer, extra="forbid"):
    """A clipping norm that follows a quantile; see `clipless.plans.clipping.AdaptiveClipping`."""

    kind: Literal["adaptive"]
    quantile: float
    share: float = Field(description="Of each step's privacy that the count of rows below the norm receives.")
    rate: float


ClippingFacts = Annotated[ScheduledClipping | QuantileClipping, Field(discriminator="kind")]


class FreezingFacts(Answer, extra="forbid"):
    """Which layers rest; see `clipless.plans.freezing.Freezing`."""

    layers: int = Field(description="How many of those with trained parameters, from the input.")
    after: float = Field(description="Share of the planned steps after which they rest.")


class CurveNoiseFacts(Answer, extra="forbid"):
    """The noise of released curves; see `sweeper.privacy.evaluation.curve_noise.CurveNoise`."""

    noise_multiplier: float
    radii: int
    two_classes: bool


class ParameterNoise(Answer, extra="forbid"):
    """The sensitivity of one parameter, and the standard deviation of its noise."""

    name: str
    sensitivity: Number
    noise_std: Number


class DataFacts(Answer, extra="forbid"):
    """Which data, and what their rows held back are."""

    name: str
    evaluation: Evaluation
    radius_unit: str


class ScoreNoiseRow(Answer, extra="forbid"):
    """The noise of scores of private rows, and what they cost; see `sweeper.records.ScorePlan`."""

    names: Sequence[str]
    noise_multiplier: float
    apart: bool
    std: Values
    rows: Mapping[str, int]
    epochs: Sequence[int]
    best_of: Values | None = Field(default=None, description="Candidates of a private selection, by score.")
    curves: CurveNoiseFacts | None
    of_the_trial: EventPrice


class Scores(Answer, extra="forbid"):
    """Scores by objective."""

    validation: Values
    test: Values | None
    test_intervals: Mapping[str, tuple[float, float]] | None = Field(
        default=None,
        description="95 %, of test scores of public rows, for new rows like them.",
        exclude_if=lambda value: value is None,
    )
    doubt: str | None = Field(
        default=None,
        description="Where a constant prediction is as good, or perhaps.",
        exclude_if=lambda value: value is None,
    )


class ClassTable(Answer, extra="forbid"):
    """How public test rows were decided by class."""

    names: Sequence[str]
    rows: Sequence[int]
    decided: Sequence[int]
    correct: Sequence[int]
    balanced_accuracy: float
    constant_answer: Number | None
    warning: str


class SmoothedTable(Answer, extra="forbid"):
    """How smoothed certificates of test rows were made; see `sweeper.records.SmoothedCounts`."""

    kind: Literal["smoothed"] = Field(description="Beside certified@R, whose certificates are deterministic.")
    sigma: float = Field(description="Of the noise on the input, in the unit of radii.")
    alpha: float = Field(description="The probability, for each row, that its certificate is wrong.")
    draws: int = Field(description="Of each row that were counted.")
    selection_draws: int = Field(description="That chose the class and the reach of a row before them.")
    rows: int
    abstained: int = Field(description="Rows without a certificate of any class.")
    correct: int = Field(description="Rows with one of their own class, at whatever radius.")


class AccountFacts(Answer, extra="forbid"):
    """The account of the data; see `sweeper.privacy.claims.AccountClaim`."""

    name: str
    epsilon: float = Field(
        description="Of everything that is ever released through it, together, unless its owner raises it."
    )
    delta: float

    def to_claim(self) -> AccountClaim:
        """Return it as the claim of a sweep has it."""
        return AccountClaim(self.name, self.epsilon, self.delta)


class CardContent(Answer, extra="forbid"):
    """The privacy card of a point."""

    card_version: Literal[1]
    sweep: str
    trial: str
    epoch: int
    made_from: str
    exploratory: bool
    guarantee: Guarantee
    exposure: PointExposures
    audits: Sequence[AuditRow]
    event: EventRow
    sampling: Sampling
    noise: Noise
    method: Method
    sensitivity_fraction: float
    clip_norm: float | None
    follow_weights: bool
    clipping: ClippingFacts
    count_std: float
    freezing: FreezingFacts | None
    parameters: Sequence[ParameterNoise]
    data: DataFacts
    score_noise: ScoreNoiseRow | None
    public: Sequence[str]
    ledger: Mapping[str, PriceFacts] = Field(description="What winner, front and everything cost.")
    conditions: Sequence[str]
    scores: Scores
    noisy_scores: NoisyScores | None
    classes: ClassTable | None
    curves: ReleasedCurves | None
    smoothed: SmoothedTable | None
    config: ConfigValues
    model: str | None = Field(description="Where the sweep's folder has the model.")
    account: AccountFacts | None = Field(description="What the sweep is charged to, None without one.")
    deployment: Mapping[str, str] = Field(description="What people said of it in the spec; nothing is inferred.")
    versions: Mapping[str, str] = Field(description="Of the programs that computed this card.")
    files: Mapping[str, Hash] | None = Field(
        default=None, description="SHA-256 of each file beside the card.", exclude_if=lambda value: value is None
    )

    @property
    def winner(self) -> PriceFacts | None:
        """The price of the winner, ``None`` where it is not known."""
        return self.ledger.get("winner")


def card_schema() -> dict[str, Any]:
    """Return the JSON schema of ``card.json``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **CardContent.model_json_schema()}
