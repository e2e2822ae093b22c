"""``sweep.json``: what a sweep is and how it stands; the only module that reads or writes it.

``format`` is the version of the whole folder, rows of trials, points and ledger included. Folders without one are older
than the first version. A folder of another format is refused in one sentence.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ValidationError

from clipless.privacy.accounting.private_selection import LAW
from sweeper.adapters import WHEN_KNOWN, dump, parse
from sweeper.errors import RecordError, SpecError
from sweeper.records import RehearsalSource, SweepStatus
from sweeper.rounding import number_of
from sweeper.store.jsonl import read_object, replace_file, to_text

if TYPE_CHECKING:
    from sweeper.specification.spec import Spec

FORMAT = 1
MANIFEST_NAME = "sweep.json"
SELECTING = "selecting"  # the mark of a private selection that has not ended
LAW_KEY = "selection_distribution"  # of earlier versions
MAX_SHOWN = 60  # characters of a wrong value in a message
# Files of the machine that ran it, and the store of an account, which may be a database.
_OF_MACHINES = (("data", "path"), ("data", "ranges"), ("privacy", "account"), ("search", "warm_start"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a sweep goes, as far as everybody may know it before any result."""

    trials: int = 0  # that are run, those of all stages; the mean of their number where a private selection draws it
    stages: tuple[int, ...] = ()  # the trials of each stage of the budget, empty where it has none
    rehearsals: int = 0  # configurations that are rehearsed before the first trial
    rehearsed_on: RehearsalSource = RehearsalSource.PUBLIC  # the rows that they are trained and scored on
    can_be_steered: bool = False  # whether proposals look at results, so that a region can be asked for
    announcement: str = ""  # the price, in one line
    # noise multipliers of scores of private validation and test rows, which a sweep keeps however far it is extended
    score_noise: Annotated[tuple[float, float] | None, WHEN_KNOWN] = None

    def has_room(self, trials: int, *, completed: bool = False) -> bool:
        """Whether a sweep of so many trials has room for another configuration: a slot, where its budget has slots.

        ``completed`` is whether all that the sweep was to train has ended; what has no slots can be extended.
        """
        return not self.stages or (trials < sum(self.stages) and not completed)

    def halted_in_words(self, status: str, rehearsed: int, sketch: str = "") -> str:
        """Say how far a sweep came that ended, as ``status`` has it, before all was rehearsed and anything trained.

        ``sketch`` is the price of the one that it rehearses on, where it is known to be paid.
        """
        spent = f"the sketch is paid ({sketch}), nothing else is spent yet" if sketch else ""
        rehearsals = f"{rehearsed} of {number_of(self.rehearsals, 'rehearsal')}"
        return f"{status} after {rehearsals}: nothing was trained, and {spent or self.rehearsed_on.spent_in_words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a sweep is and how it stands."""

    name: str
    status: SweepStatus  # how it stands or ended, and ``reason`` in one sentence
    reason: str = ""
    spec: Mapping[str, Any]  # the resolved spec, as JSON values; `read_spec` returns it as a `Spec`
    # the values in it that the file of the spec does not have, by dotted name
    overrides: Mapping[str, Any] = field(default_factory=dict)
    spec_hash: str = ""
    source: str
    versions: Mapping[str, str] = field(default_factory=dict)
    started: str = ""  # time in the name of the folder, ``YYYYmmdd-HHMMSS``
    population: int | None = None  # N, number of training rows; public
    # what holds for every point, as JSON values; ``sweeper.driver.resume`` reads it
    claim: Mapping[str, object] | None = None
    course: Course = Course()
    data_dir: str | None = None
    tracking: str | None = None  # MLflow tracking URI, ``None`` for the SQLite file beside the folder, or in it
    cluster: str | None = None
    storage: str | None = None  # URL through which its nodes exchanged files
    page: str | None = None  # address of its live page, to which runs and alerts link
    # drawn when the sweep began, and kept from then on; ``None`` for sweeps of earlier versions
    id: Annotated[str | None, WHEN_KNOWN] = None
    # where the folder of a private selection that has not ended was made, ``None`` for all others
    selecting: Annotated[str | None, WHEN_KNOWN] = None

    @property
    def selects_privately(self) -> bool:
        """Whether the sweep selects privately."""
        from sweeper.specification.search import Selection  # takes seconds, and few who read a folder ask

        search = self.spec.get("search")
        return isinstance(search, Mapping) and search.get("selection") == Selection.PRIVATE.value

    def read_spec(self, source: str | None = None) -> "Spec":
        """Return the spec.

        Raises:
            SpecError: it is none, or a private selection of an earlier version by another law than the geometric.
        """
        from sweeper.specification.spec import Spec  # likewise

        path = self.source if source is None else source
        overrides = {name: value for name, value in self.overrides.items() if name != f"search.{LAW_KEY}"}
        return Spec.from_mapping(_without_law(self.spec, path), path, overrides)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; the mark of a private selection is there only while it runs."""
        return {"format": FORMAT, **dump(self)}


def draw_id() -> str:
    """Return a random id for a sweep that begins, which nothing about the sweep follows from."""
    return secrets.token_hex(16)


def _without_law(spec: Mapping[str, object], source: str) -> Mapping[str, object]:
    """Return a spec without the law of a private selection, which earlier versions let users choose."""
    search = spec.get("search")
    law = search.get(LAW_KEY) if isinstance(search, Mapping) else None
    if not isinstance(search, Mapping) or law is None:
        return spec
    if law != LAW:
        raise SpecError(
            f"Expected a private selection with a {LAW} number of trials, got {LAW_KEY}={law!r} (search.{LAW_KEY} in "
            f"{source}); read it with the version of sweeper that wrote it"
        )
    return {**spec, "search": {name: value for name, value in search.items() if name != LAW_KEY}}


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace ``sweep.json``.

    Raises:
        RecordError: it could not be written.
    """
    replace_file(folder / MANIFEST_NAME, to_text(manifest.to_json(), indent=2) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Read ``sweep.json``.

    Raises:
        RecordError: missing, of another format, or without a field.
    """
    path = folder / MANIFEST_NAME
    if not path.exists():
        raise RecordError(
            f"Expected the folder of a sweep, but there is no {path}; sweeper list shows those of a folder"
        )
    content = read_object(path)
    found = content.get("format")
    if type(found) is not int or found != FORMAT:
        got = "none, as in the format before it" if found is None else repr(found)[:MAX_SHOWN]
        remedy = "read it with the version of sweeper that wrote it, or run its spec.yaml again"
        raise RecordError(f"Expected format {FORMAT} in {path}, got {got}; {remedy}")
    try:
        return parse(Manifest, content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        got = "none" if first["type"] == "missing" else repr(first["input"])[:MAX_SHOWN]
        raise RecordError(f"Expected {name} of a sweep in {path}, got {got}; restore the file") from None


def is_marked(folder: Path) -> bool:
    """Whether the ``sweep.json`` of a folder, whatever its format, marks a private selection that has not ended."""
    try:
        return SELECTING in read_object(folder / MANIFEST_NAME)
    except RecordError:
        return False


def told_spec(content: Mapping[str, object]) -> dict[str, Any]:
    """Return a spec, as JSON values, as others than its owner may be told it.

    Guarantees:
        Of every file that it names only the last part of the path is told, and of an account its name alone: not the
        store it lies in.
    """
    told = dict(content)
    for section, key in _OF_MACHINES:
        values = told.get(section)
        if isinstance(values, Mapping) and values.get(key) is not None:
            place = str(values[key]).rpartition("#")[2] if key == "account" else str(values[key])
            told[section] = {**values, key: Path(place).name}
    return told
