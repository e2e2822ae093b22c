"""The entries of an account: frozen values inside, canonical JSON in the store, each with the hash of the one before.

An entry is never changed. Its hash is the SHA-256 of its text, which holds its number and the hash of the entry before;
before the first one stands a hash of the store and the name, so that a chain fits one account of one store.
"""

import enum
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from clipless.errors import AccountingError
from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost
from sweeper.adapters import WHEN_KNOWN
from sweeper.errors import RecordError

EVERYBODY = "*"  # whose share is that of each spender who is not named


class Side(enum.Enum):
    """The rows that a release reads: a row of data stays on one side of its account's split."""

    TRAINING = "training"
    VALIDATION = "validation"
    TEST = "test"


Costs = Mapping[Side, GaussianCost]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of every budget a spender may take, or the members of a group together; ``part`` is from 0 to 1."""

    name: str
    part: float
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How long the ledger of a sweep was, in bytes of whole lines, and the SHA-256 of these."""

    length: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The account is opened: what it promises, and to whom.

    Attributes:
        unit: the privacy unit, as data sets declare it.
        square: mu^2 of the budget of each block, and ``slack`` its slack, as epsilon and delta give them.
        until: the last day on which anything may be reserved, as ``YYYY-MM-DD``.
        salt: of the split by hash that is that of the account; the first sweep says its fractions.
        column: that declares the split, in place of a salt.
    """

    name: str
    unit: str
    relation: Relation
    epsilon: float
    delta: float
    square: float
    slack: float
    shares: tuple[Share, ...] = ()
    until: Annotated[str | None, WHEN_KNOWN] = None
    salt: Annotated[str | None, WHEN_KNOWN] = None
    column: Annotated[str | None, WHEN_KNOWN] = None
    by: str
    at: str
    kind: Literal["opened"] = "opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The budget of every block is larger from now on: a new statement to the people in the data."""

    epsilon: float
    delta: float
    square: float
    slack: float
    because: str
    by: str
    at: str
    kind: Literal["raised"] = "raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """Spenders have these shares from now on."""

    shares: tuple[Share, ...]
    by: str
    at: str
    kind: Literal["shared"] = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A block is bound to its rows, of which ``digest`` is keyed, as are the ids of its ``units``, see `digest_ids`.

    There are none where each row is a unit, of all rows, and in an entry of an earlier version.
    """

    block: str
    digest: str
    units: Annotated[str | None, WHEN_KNOWN] = None
    at: str
    kind: Literal["bound"] = "bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A sweep, or a release outside of one, may take so much of each of these blocks, beside what it had before.

    ``split`` says the side of each row, ``None`` where rows are not assigned one by one; the first one of those that
    the account was opened for is that of the account. ``sides`` has the keyed digest of what put each row of a block
    there; an entry of an earlier version has none. ``public`` is whether rows held back are declared public; ``None``
    of a release outside of a sweep, and of an earlier version. ``table`` has the keyed digest of the rows of the file
    as they were read, whatever their blocks and encoding, and ``read`` those of the rows of each block; ``None`` where
    none is known. ``cut`` is the column that cuts the rows into blocks; ``None`` of all rows, and of an earlier
    version. ``whole`` has the keyed digests of the rows of all these blocks together, as they are encoded and as they
    were read; ``None`` of one block, and of an earlier version. ``federation`` has the digest of the federation in
    whose sums the rows are, ``None`` of a sweep.
    """

    sweep: str
    title: str
    spender: str
    blocks: tuple[str, ...]
    costs: Costs
    split: Annotated[str | None, WHEN_KNOWN] = None
    sides: Annotated[Mapping[str, str] | None, WHEN_KNOWN] = None
    public: Annotated[bool | None, WHEN_KNOWN] = None
    table: Annotated[str | None, WHEN_KNOWN] = None
    read: Annotated[tuple[str, ...] | None, WHEN_KNOWN] = None
    cut: Annotated[str | None, WHEN_KNOWN] = None
    whole: Annotated[tuple[str, ...] | None, WHEN_KNOWN] = None
    federation: Annotated[str | None, WHEN_KNOWN] = None
    at: str
    kind: Literal["reserved"] = "reserved"

    def blocks_by_rows(self) -> dict[str, tuple[str, ...]]:
        """Return the blocks of rows, by the digests of those of one block and of those that are read together."""
        alone = {digest: (block,) for block, digest in zip(self.blocks, self.read or (), strict=False)}
        return alone | dict.fromkeys(self.whole or (), self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """A release of a sweep is about to draw its noise; its ledger, ``position`` long, says so too."""

    sweep: str
    what: str
    costs: Costs
    position: Position
    at: str
    kind: Literal["charged"] = "charged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A sweep has ended; ``returned`` is what it had reserved and not drawn."""

    sweep: str
    returned: Costs
    position: Position
    at: str
    kind: Literal["settled"] = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Nothing more may be reserved of a block, or of the whole account where none is named."""

    block: Annotated[str | None, WHEN_KNOWN] = None
    because: str
    by: str
    at: str
    kind: Literal["closed"] = "closed"


Entry = Opened | Raised | Shared | Bound | Reserved | Charged | Settled | Closed
_ENTRIES: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One entry in its chain.

    Attributes:
        number: of the entry, from 1.
        text: canonical JSON, with the number and the hash of the entry before.
        digest: SHA-256 of the text, hexadecimal.
    """

    number: int
    text: str
    digest: str


def first_digest(store: str, name: str) -> str:
    """Return what stands for the hash before the first entry of an account."""
    return _digest(_canonical({"account": name, "store": store}))


def link(entry: Entry, number: int, previous: str) -> Link:
    """Return an entry as the next one of its chain."""
    content = _ENTRIES.dump_python(entry, mode="json", warnings=False)
    text = _canonical({**content, "number": number, "previous": previous})
    return Link(number=number, text=text, digest=_digest(text))


def follow_links(links: Sequence[Link], number: int, previous: str) -> tuple[Entry, ...]:
    """Return the entries of links that stand behind the entry of that number and hash, 0 and the first hash for none.

    Raises:
        RecordError: the text of one is not what was written, or one is missing.
    """
    entries = []
    for one in links:
        number += 1
        if one.number != number:
            raise RecordError(
                f"Expected entry {number}, got entry {one.number}: entries are missing; restore the store"
            )
        entries.append(_read(one, previous))
        previous = one.digest
    return tuple(entries)


def _read(one: Link, previous: str) -> Entry:
    broken = f"Expected entry {one.number} as it was written, got another text"
    if _digest(one.text) != one.digest:
        raise RecordError(f"{broken} than its hash says; restore the store")
    try:
        content = json.loads(one.text)
        place = content.pop("number"), content.pop("previous")
        entry = _ENTRIES.validate_python(content)
    except (ValueError, KeyError, TypeError, AttributeError, AccountingError) as error:
        raise RecordError(f"{broken}, which is no entry; restore the store") from error
    if place != (one.number, previous):
        raise RecordError(f"{broken} than the entry before it says; restore the store")
    return entry


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
