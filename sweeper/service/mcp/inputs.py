"""What tools are called with, typed: the schemas that a client is shown, and the checks of what it sends."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sweeper.records import Scalar
from sweeper.service.routes.steering import MAX_VALUES
from sweeper.service.routes.write import MAX_TRIALS
from sweeper.specification.objectives import MOST

LONGEST_WAIT = 30  # seconds of one call: clients and proxies give up on longer ones
MOST_ROWS = 100  # of one answer, which a client reads whole
MOST_COMPARED = 10

SweepId = Annotated[
    str,
    Field(max_length=150, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Id of a sweep, as list_sweeps has it."),
]
TrialId = Annotated[str, Field(max_length=50, pattern="^[A-Za-z0-9]+$", description="Id of a trial, such as t0007.")]
Offset = Annotated[int, Field(ge=0, le=10**9, description="Rows to leave out.")]
Limit = Annotated[int, Field(ge=1, le=MOST_ROWS, description="Rows to return, at most.")]
SpecContent = Annotated[
    dict[str, Any], Field(description="A spec: sections data, model, training, privacy, search; see describe_spec.")
]


class ToolInput(BaseModel):
    """Arguments of a tool; what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NoInput(ToolInput):
    """Nothing."""


class SpecKeyInput(ToolInput):
    """A part of the spec."""

    key: Annotated[
        str | None,
        Field(
            max_length=100,
            pattern="^[a-z_]+([.][a-z0-9_]+)?$",
            description="A section or a key, such as privacy or training.loss; without it, every key in short.",
        ),
    ] = None


class SpecInput(ToolInput):
    """A spec."""

    spec: SpecContent


class SubmissionInput(SpecInput):
    """A spec that is to be run."""

    key: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=200,
            pattern="^[A-Za-z0-9._-]+$",
            description="Your own name for this submission: the same key again gives the same sweep, not a second one.",
        ),
    ] = None


class PageInput(ToolInput):
    """A page of sweeps."""

    offset: Offset = 0
    limit: Limit = 20


class SweepInput(ToolInput):
    """A sweep."""

    sweep: SweepId


class AccountInput(ToolInput):
    """An account."""

    account: Annotated[
        str,
        Field(
            max_length=64,
            pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="Name of an account, as list_accounts has it.",
        ),
    ]


class LimitedInput(SweepInput):
    """The first rows of a sweep."""

    limit: Limit = 20


class WatchInput(SweepInput):
    """A sweep, and how long to wait."""

    seconds: Annotated[
        int,
        Field(ge=0, le=LONGEST_WAIT, description="Wait so long, at most, until it has changed; 0 answers at once."),
    ] = 0


class ComparisonInput(ToolInput):
    """Sweeps side by side."""

    sweeps: Annotated[list[SweepId], Field(min_length=2, max_length=MOST_COMPARED)]
    anyway: Annotated[
        bool, Field(description="Compare sweeps that differ in delta, relation, data or objectives, and list how.")
    ] = False


class ConfigurationInput(SweepInput):
    """A configuration to try next."""

    values: Annotated[
        dict[str, Scalar],
        Field(
            max_length=MAX_VALUES,
            description="Open hyperparameters by dotted name, such as training.learning_rate; those left out are "
            "sampled.",
        ),
    ]


class RegionInput(SweepInput):
    """A region of the front."""

    region: Annotated[
        list[Annotated[str, Field(max_length=200)]],
        Field(max_length=MOST, description="Bounds on objectives, such as epsilon <= 3; none to search everywhere."),
    ]


class StopInput(SweepInput):
    """A sweep, or a trial of it."""

    trial: Annotated[TrialId | None, Field(description="End this trial alone, after its epoch.")] = None


class ExtensionInput(SweepInput):
    """How far a sweep is to go."""

    trials: Annotated[int, Field(ge=1, le=MAX_TRIALS, description="How many in all, those that ran included.")]


class PickInput(SweepInput):
    """What a picked point must meet."""

    max_price: Annotated[
        float | None, Field(description="Largest price to accept: the epsilon of the whole sweep.")
    ] = None
    max_epsilon: Annotated[
        float | None, Field(description="Largest own epsilon to accept, as if it had been fixed in advance.")
    ] = None
    minimum: Annotated[
        Mapping[str, float],
        Field(max_length=20, description="Smallest values to accept by objective, such as certified@36/255: 0.3."),
    ] = {}
