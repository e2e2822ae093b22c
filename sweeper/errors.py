"""Errors a user of the sweeper can catch, and what of an error may leave the machine.

What clipless raises, the functions of `sweeper` raise as errors of this package (`sweeper.calls`).

The owner of the data sees every message on the console and in the sweep's `FAILURES_NAME`. Records, tracking, webhook,
service and page repeat `public_line` or `public_sentence`: a message is in them only if its kind says that no private
row had a part in it.
"""

from clipless.errors import CliplessError, DataError, DeclarationError, FederationError, numbered

PACKAGES = ("clipless", "sweeper", "dashboards")
FAILURES_NAME = "failures.jsonl"
MAX_REASON_LENGTH = 400
FOR_THE_OWNER = f"its message may quote data: the owner finds it in {FAILURES_NAME} in the sweep's folder"


class SweeperError(Exception):
    """Base class of every error this package raises on purpose."""


class SpecError(SweeperError, ValueError):
    """A sweep specification that cannot be run; names file, field, value and remedy.

    Attributes:
        mistakes: one sentence each; the message numbers them where there are several.
    """

    def __init__(self, *mistakes: str) -> None:
        super().__init__(numbered(mistakes))
        self.mistakes = mistakes


class UnexpectedValueError(SpecError):
    """A value of a spec that is not what should stand there; who knows its field says where.

    Attributes:
        expected: what should stand there.
        remedy: what to do, empty where ``expected`` says it.
    """

    def __init__(self, expected: str, got: str, remedy: str = "") -> None:
        super().__init__(f"Expected {expected}, got {got}" + (f"; {remedy}" if remedy else ""))
        self.expected, self.remedy = expected, remedy


class InputError(SweeperError, DataError):
    """Data, rows to predict or a model that cannot be used; its message is for the owner of the data alone."""


class ArgumentError(SweeperError, TypeError):
    """A function of this package was called with an argument that it does not take; names the one that it takes."""


class RecordError(SweeperError, ValueError):
    """A sweep folder, ledger or front file that cannot be read."""


class AccountError(SweeperError, ValueError):
    """The account of a data set refuses a sweep, or what is asked of it; nothing was taken."""


class PickError(SweeperError, LookupError):
    """No point of the front meets the conditions."""


class TrialError(SweeperError, RuntimeError):
    """A trial that cannot go on."""


class RefutedError(SweeperError, RuntimeError):
    """An attack succeeded where a certificate says that none can: neither is reported."""


class ExportError(SweeperError, RuntimeError):
    """A figure or file that could not be written."""


class UnknownFigureError(ExportError):
    """There is no figure of that name."""


class EmptyFigureError(ExportError):
    """A sweep has nothing for a figure to show."""


class UnknownSweepError(SweeperError, LookupError):
    """The service knows no sweep, trial or file of that name."""


class UnknownTrialError(RecordError):
    """A sweep has no trial of that name."""


class UnknownAccountError(SweeperError, LookupError):
    """The service has no account of that name."""


class RefusalError(SweeperError, PermissionError):
    """The service does not do what a request asks: who asks may not, too much is asked, or the request is odd."""

    def __init__(self, sentence: str, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers or {}


def one_line(error: BaseException | str) -> str:
    """Return an error as one line of text, for the owner of the data."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    line = " ".join(text.split()).removesuffix(":")
    return line if len(line) <= MAX_REASON_LENGTH else f"{line[:MAX_REASON_LENGTH]}..."


def public_line(error: BaseException) -> str:
    """Return what anybody may be told of an error, in one line.

    Guarantees:
        An error computed from private rows gives the name of its type and no more: a `DataError` that is not a
        `DeclarationError`, a `FederationError`, and every error of a kind that these packages do not define.
    """
    return one_line(error) if _is_public(error) else f"{type(error).__name__}: {FOR_THE_OWNER}"


def public_sentence(error: BaseException, limit: int | None = None) -> str:
    """Return the sentence of an error if anybody may be told it, otherwise `public_line`, with the same guarantee.

    Of several mistakes of a spec, those are told that have room in ``limit`` letters, and how many more there are.
    """
    if not _is_public(error):
        return public_line(error)
    said, untold = " ".join(str(error).split()), 0
    mistakes = error.mistakes if isinstance(error, SpecError) else ()
    while limit is not None and len(said) > limit and untold < len(mistakes) - 1:
        untold += 1
        said = " ".join(numbered(mistakes, untold).split())
    return said


def _is_public(error: BaseException) -> bool:
    ours = type(error).__module__.partition(".")[0] in PACKAGES  # a plug-in's kind may say anything
    if isinstance(error, DataError | FederationError):
        return ours and isinstance(error, DeclarationError)
    return ours and isinstance(error, SweeperError | CliplessError)
