"""What tools answer where the service's own answers would be too long: parts of them, each score beside its price."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from sweeper.privacy.card.content import Answer, Guarantee, ModelPrice, Number, PriceFacts, Values
from sweeper.records import ConfigValues, Interval, NoisyScores, Objective, Scalar, SweepStatus
from sweeper.service.responses.accounts import AccountQuoted
from sweeper.service.responses.models import FrontSummary, Hypervolume, PointName, Submitted

Prices = Annotated[
    Mapping[str, PriceFacts], Field(description="The price: of the winner, of the front, and of everything.")
]


class SpecKeys(Answer):
    """What a spec may say."""

    about: str
    keys: Mapping[str, Any] = Field(description="JSON schemas, by section and key, without repetitions.")


class SubmissionReceipt(Answer):
    """A sweep that was submitted."""

    id: str
    state: SweepStatus
    name: str
    trials: int
    price: str = Field(description="What it costs, in words.")
    account: AccountQuoted | None = Field(description="What it takes of the account of its data; None without one.")


class SweepStanding(Answer):
    """How a sweep stands; the front in numbers holds its price."""

    id: str
    state: SweepStatus
    trouble: str
    reason: str
    name: str | None
    submission: Submitted | None
    front: FrontSummary | None = Field(description="None until the first epoch has ended.")
    spec: Mapping[str, Any] | None


class ShownPoint(PointName):
    """A point of a front; its price is that of the front."""

    values: Values = Field(description="Validation values by objective.")
    noisy: NoisyScores | None = Field(default=None, description="Where values are estimates from noisy scores.")
    config: ConfigValues


class ShownFront(Answer):
    """A front, the points of best utility first."""

    sweep: str
    price: Prices
    objectives: Sequence[Objective]
    claim: Mapping[str, Any] = Field(description="What is promised, and for which data.")
    hypervolume: Hypervolume
    knee: PointName | None
    refused: Mapping[str, str] = Field(description="Trials whose claim an audit contradicted, and why.")
    total: int
    points: Sequence[ShownPoint]


class ShownTrials(Answer):
    """Trials of a sweep, the last first."""

    price: Prices
    total: int
    trials: Sequence[Mapping[str, Scalar | None]]


class ComparedSweep(Answer):
    """One of several sweeps."""

    sweep: str
    name: str
    hypervolume: Number
    hypervolume_interval: Interval | None = Field(description="At 95 %, where scores are noisy.")
    front_points: int
    price: Prices


class ComparedSweeps(Answer):
    """Sweeps side by side."""

    price: str = Field(description="What choosing between them costs.")
    objectives: Sequence[Objective]
    sweeps: Sequence[ComparedSweep]
    differences: Sequence[str]
    conflicts: Sequence[str] = Field(description="Why they are not comparable, where that was asked for.")


class PickedModel(PointName):
    """The point of best utility within the conditions: where its model and its card are, and what it costs."""

    values: Values
    test: Values | None
    noisy: NoisyScores | None
    price: ModelPrice | None = Field(description="Of choosing it by scores of its sweep; None without a guarantee.")
    guarantee: Guarantee | None
    config: ConfigValues
    model: str = Field(description="Address of its model at the service.")
    papers: str = Field(description="Address of the model with its card, hashes, ledger and spec.")
