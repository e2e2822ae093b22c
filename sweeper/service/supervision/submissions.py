"""What the service was asked to run, kept in ``submission.json`` in the folder of each sweep.

A new sweep's folder is made whole under a hidden name and then moved to its own, so that a crash leaves all of it or
nothing. The driver finds it there and begins.
"""

import enum
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ValidationError

from sweeper.account.verify import release_reservation
from sweeper.errors import RecordError, SweeperError
from sweeper.store.actions import REQUESTS_NAME, SUBMISSION_NAME
from sweeper.store.jsonl import JsonlFile, read_object, replace_file, to_text
from sweeper.store.sweep_folder import SweepFolder

MAKING = ".submitting-"  # how the names of folders begin that are not whole yet
MOST_IN_A_SECOND = 1000


class Intent(enum.Enum):
    """What the service is to do about a sweep."""

    RUN = "run"
    STOP = "stop"
    REST = "rest"


class Cause(enum.Enum):
    """Why a submission rests whose sweep does not say it."""

    NEVER_BEGUN = "never-begun"  # it was stopped before
    GIVEN_UP = "given-up"  # too many drivers died
    FAILED = "failed"  # its driver could not begin


class Submission(BaseModel, extra="forbid", frozen=True):
    """What was asked for, and how far that is."""

    version: int = 1
    submitted: float  # when, in seconds since 1970; the earliest runs first
    by: str = ""  # who submitted it; empty where it was started otherwise, and the service resumes it
    key: str | None = None  # hash of the client's name for the request, None without one
    digest: str | None = None  # hash of what was submitted under that name
    intent: Intent = Intent.RUN  # what is to be done
    trials: int | None = None  # how many in all, where the sweep was extended
    job: str | None = None  # the driver that was started last, None before the first or when another is to be started
    mark: int = 0  # time of ``sweep.json`` when the driver was started; later, the driver has begun
    asked: int = 0  # rows of requests there were then
    points: int = 0  # bytes of points there were then
    deaths: int = 0  # drivers in a row that died without a new point
    not_before: float = 0.0  # when the next driver may be started, in seconds since 1970
    cause: Cause | None = None  # why it rests, where the sweep itself does not say
    failure: str = ""  # what its driver said of a failure

    def but(self, **changes: object) -> Self:
        """Return it with other values."""
        return self.model_copy(update=changes)


def write(folder: Path, submission: Submission) -> None:
    """Replace ``submission.json``.

    Raises:
        RecordError: not written.
    """
    replace_file(folder / SUBMISSION_NAME, to_text(submission.model_dump(mode="json"), indent=1) + "\n")


def read(folder: Path) -> Submission:
    """Read ``submission.json``.

    Raises:
        RecordError: there is none, or it cannot be read.
    """
    try:
        return Submission.model_validate(read_object(folder / SUBMISSION_NAME))
    except ValidationError as error:
        field = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
        raise RecordError(
            f"Expected a submission in {folder / SUBMISSION_NAME}, but not in {field}; remove the file"
        ) from None


def reserve(
    out: Path,
    name: str,
    spec_text: str,
    submission: Submission,
    now: datetime,
    hold: Callable[[Path, str], None] | None = None,
) -> Path:
    """Make the folder of a sweep that is to be run, and return it.

    ``hold`` reserves from the account of its data, given the folder while it is hidden, and its name to come.

    Raises:
        AccountError: the account refuses it; there is no folder then.
        RecordError: the folder cannot be made.
    """
    making: Path | None = None
    try:
        out.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=MAKING, dir=out))
        making.chmod(0o755)
        (making / "models").mkdir()
        replace_file(SweepFolder(making).spec, spec_text)
        write(making, submission)
        for path in _places(out, f"{name}-{now:%Y%m%d-%H%M%S}"):
            if not path.exists():
                if hold is not None:
                    hold(making, path.name)
                return making.rename(path)
    except OSError as error:
        raise RecordError(f"Cannot make a folder in {out}: {error.strerror or error}; make room") from error
    finally:
        if making is not None:
            _drop(making)
    raise RecordError(f"Cannot make a folder for {name} in {out}: a thousand exist; wait a second")


def find_folders(out: Path) -> Iterator[Path]:
    """Yield the folders that have a submission, and remove those that a crash left unfinished."""
    for path in out.glob(f"{MAKING}*"):
        _drop(path)
    for file in sorted(out.glob(f"*/{SUBMISSION_NAME}")):
        if not file.parent.is_symlink() and not file.parent.name.startswith("."):
            yield file.parent


def hash_texts(*texts: str | bytes) -> str:
    """Return a hash of texts, which does not tell them."""
    digest = hashlib.sha256()
    for text in texts:
        raw = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()


def was_stopped(folder: Path, since: int) -> bool:
    """Return whether a request asked the sweep to stop, after the first so many rows of requests."""
    return any(row.get("stop") is True for row in JsonlFile(folder / REQUESTS_NAME).read()[since:])


def count_requests(folder: Path) -> int:
    """Return how many rows of requests there are."""
    return len(JsonlFile(folder / REQUESTS_NAME).read())


def _drop(making: Path) -> None:
    """Remove a folder that is not whole; one whose reservation cannot be given back now is kept for the next start."""
    with suppress(SweeperError):
        release_reservation(making)
        shutil.rmtree(making, ignore_errors=True)


def _places(out: Path, stem: str) -> Iterator[Path]:
    yield out / stem
    for number in range(2, MOST_IN_A_SECOND):
        yield out / f"{stem}-{number}"
