"""Errors a user of clipless can catch."""

from collections.abc import Sequence


def numbered(mistakes: Sequence[str], untold: int = 0) -> str:
    r"""Return mistakes as one message, which numbers them where there are several; the last ``untold`` are counted.

    >>> numbered(["no target"]), numbered(["no target", "no source"])
    ('no target', '2 mistakes:\n(1) no target\n(2) no source')
    """
    lines = [f"({number}) {mistake}" for number, mistake in enumerate(mistakes, start=1)]
    told = [*lines[: len(lines) - untold], *([f"and {untold} more"] if untold else [])]
    return mistakes[0] if len(mistakes) == 1 else "\n".join([f"{len(mistakes)} mistakes:", *told])


class CliplessError(Exception):
    """Base class of every error this package raises on purpose."""


class InvalidBoundError(CliplessError, ValueError):
    """A bound that is negative, infinite or NaN."""


class UnsupportedError(CliplessError, TypeError):
    """A layer, loss, projection, optimiser or setting that has no rule."""


class PlanError(CliplessError, ValueError):
    """Privacy parameters that do not fit together, or a plan used with another model, loss or data."""


class AccountingError(CliplessError, ValueError):
    """An event or a privacy parameter that no accountant here can price."""


class AccountantsDisagreeError(CliplessError, RuntimeError):
    """One accountant's upper bound fell below the other's optimistic estimate: neither is trusted."""


class DataError(CliplessError, ValueError):
    """Data that cannot be used; the message names file, column, value and remedy.

    The message may quote a cell or a count of private rows: it is for the owner of the data alone.

    Attributes:
        mistakes: one sentence each; the message numbers them where there are several.
    """

    def __init__(self, *mistakes: str) -> None:
        super().__init__(numbered(mistakes))
        self.mistakes = mistakes


class DeclarationError(DataError):
    """A declaration about data that cannot be used; the message was formed without looking at a row."""


class ModelFileError(CliplessError, ValueError):
    """A saved model that cannot be read back."""


class AuditError(CliplessError, ValueError):
    """An audit that cannot be made, or a finding that no audit can have."""


class FederationError(CliplessError, RuntimeError):
    """A protocol among parties that cannot go on.

    Attributes:
        party: whose message is missing, malformed, replayed or false, where one is to blame.
    """

    def __init__(self, sentence: str, party: str | None = None) -> None:
        super().__init__(sentence if party is None else f"Party {party!r}: {sentence}")
        self.party = party
