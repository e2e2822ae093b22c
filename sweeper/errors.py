"""Errors a user of the sweeper can catch."""


class SweeperError(Exception):
    """Base class of every error this package raises on purpose."""


class SpecError(SweeperError, ValueError):
    """A sweep specification that cannot be run; names file, field, value and remedy."""


class RecordError(SweeperError, ValueError):
    """A sweep folder, ledger or front file that cannot be read."""


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


class UnknownSweepError(SweeperError, LookupError):
    """The service knows no sweep, trial or file of that name."""


class RefusalError(SweeperError, PermissionError):
    """The service does not do what a request asks: who asks may not, too much is asked, or the request is odd.

    Attributes:
        status: of the HTTP answer.
        headers: of the answer.
    """

    def __init__(self, sentence: str, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers or {}
