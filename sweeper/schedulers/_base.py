"""What a scheduler decides."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided about a trial, and why.

    Attributes:
        trial: its id.
        epoch: after which it was decided.
        goes_on: whether the trial trains on.
        reason: in one sentence.
        rung: the rung, None for a projection.
        rank: place among the trials of the rung, from 1.
        of: trials that have reached the rung, this one included.
        kept: how many of them may go on.
        failed: whether it ends because a score is no number.
    """

    trial: str
    epoch: int
    goes_on: bool
    reason: str
    rung: int | None = None
    rank: int | None = None
    of: int | None = None
    kept: int | None = None
    failed: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}
