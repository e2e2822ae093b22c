"""The file that all who take part hold: who they are, what is released, and what it costs. All of it is public."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import Field, ValidationError, model_validator

from clipless.curves.tree import Floats
from clipless.federated.aggregation.roster import Roster
from clipless.federated.curves import Domain
from clipless.federated.function_sharing import Upload
from clipless.federated.query import Query
from clipless.privacy.events import Relation
from sweeper.errors import SpecError, SweeperError
from sweeper.specification.addresses import check_url, find_account
from sweeper.specification.fields._section import Section
from sweeper.specification.fields.messages import bad_value, sentences
from sweeper.specification.yaml_file import read_mapping
from sweeper.store.jsonl import to_text

ANALYST = "analyst"
KEY_HEX = 64
Protocol = Literal["curator", "aggregation", "function-sharing"]
CurveName = Literal["roc", "certified"]
_BOTH: tuple[CurveName, ...] = ("roc", "certified")
SERVERS = {"curator": 1, "aggregation": 1, "function-sharing": 2}
Finite = Annotated[float, Gt(0), Le(1e6)]


class Server(Section):
    """A server of the protocol."""

    name: Annotated[str, MinLen(1)]  # by which others know it
    url: str | None = None  # where it listens; left out, it is a process of this machine
    key: str | None = None  # its public key


class Party(Section):
    """Whose rows are counted."""

    name: Annotated[str, MinLen(1)]  # by which others know it
    rows: Annotated[int, Ge(1), Le(10**7)]  # how many it has at most, for all to see; shares are of this number
    key: str | None = None  # its public key
    data: str | None = None  # its rows, if it is a process of this machine
    account: str | None = None  # of its rows, on its machine: FILE#NAME, or postgresql://HOST/DATABASE#NAME
    block: str | None = None  # column that cuts its rows into the blocks of that account


class Federation(Section):
    """A federated evaluation."""

    protocol: Protocol  # curator, aggregation, or function-sharing
    epsilon: Finite  # of each row, or unit, for everything that is released
    # which rows of all parties together are neighbours
    relation: Literal["add-or-remove-one", "replace-one"] = "add-or-remove-one"
    # what is released; epsilon is divided evenly among them
    curves: Annotated[list[CurveName], MinLen(1)] = Field(default_factory=lambda: list(_BOTH))
    thresholds: Annotated[int, Ge(2), Le(4096)] = 100  # of each curve
    radius: Finite = 1.0  # the largest of the certified curve, in raw units
    levels: Annotated[int, Ge(2), Le(16)] = 12  # of the domain of function sharing, 2^levels thresholds
    target: str | None = None  # the column of labels, for tables
    unit: str | None = None  # the column that identifies the privacy unit; left out, a row
    colluding: Annotated[int, Ge(0)] = 0  # aggregation: how many parties may collude with the server
    # aggregation: how many must stay to the end; 0 for as few as ``colluding`` allows
    needed: Annotated[int, Ge(0)] = 0
    wait_seconds: Finite = 60.0  # how long servers wait for those who are missing
    # one, or two for function sharing; left out, they are processes of this machine
    servers: list[Server] = Field(default_factory=list)
    parties: Annotated[list[Party], MinLen(1)]  # whose rows are counted
    analyst: str | None = None  # the public key of who is told the result

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [ANALYST, *(server.name for server in self.servers), *(party.name for party in self.parties)]
        if len(set(names)) != len(names) or any("/" in name or not name.isprintable() for name in names):
            raise bad_value("servers and parties of different names without /, none of them 'analyst'", got=None)
        count = SERVERS[self.protocol]
        if self.servers and len(self.servers) != count:
            raise bad_value(f"{count} servers for the protocol {self.protocol}", path="servers", got=len(self.servers))
        if len(set(self.curves)) != len(self.curves):
            raise bad_value("each curve once", path="curves", got=self.curves)
        if self.thresholds > 2**self.levels - 1:
            raise bad_value("fewer thresholds than 2^levels", path="thresholds", got=self.thresholds)
        if self.unit is not None and self.target in (None, self.unit):
            raise bad_value("a target, and another column than it for units", path="unit", got=self.unit)
        for owner, key in self._keys().items():
            if key is not None and (len(key) != KEY_HEX or not set(key) <= set("0123456789abcdef")):
                raise bad_value(f"the public key of {owner}, {KEY_HEX} digits and letters a to f", got=key)
        return self

    def _keys(self) -> dict[str, str | None]:
        owners: Sequence[Server | Party] = (*self.servers, *self.parties)
        return {ANALYST: self.analyst, **{owner.name: owner.key for owner in owners}}

    @property
    def is_local(self) -> bool:
        """Whether all who take part are to be started as processes of this machine."""
        return not any(server.url for server in self.servers)

    def check_complete(self) -> None:
        """Refuse a federation without keys or addresses.

        Raises:
            SweeperError: something is missing.
        """
        missing = [owner for owner, key in self._keys().items() if key is None]
        missing += [server.name for server in self.servers if server.url is None]
        if missing or not self.servers:
            named = ", ".join(missing) or "servers"
            raise SweeperError(f"Expected keys and addresses of all who take part, got none of {named}")
        for server in self.servers:
            check_url(str(server.url), f"an address of {server.name}", "servers.url")

    def key_of(self, name: str) -> bytes:
        """Return a public key.

        Raises:
            SweeperError: there is nobody of that name, or no key.
        """
        found = self._keys().get(name)
        if found is None:
            raise SweeperError(f"Expected somebody of the federation who has a key, got {name!r}")
        return bytes.fromhex(found)

    def server(self, name: str) -> Server:
        """Return a server.

        Raises:
            SweeperError: there is none of that name.
        """
        for server in self.servers:
            if server.name == name:
                return server
        known = ", ".join(server.name for server in self.servers)
        raise SweeperError(f"Expected a server out of {known}, got {name!r}")

    def party(self, name: str) -> Party:
        """Return a party.

        Raises:
            SweeperError: there is none of that name.
        """
        for party in self.parties:
            if party.name == name:
                return party
        raise SweeperError(f"Expected a party of the federation, got {name!r}")

    @property
    def digest(self) -> bytes:
        """What stands for all that everybody has to agree on: everything but addresses and paths."""
        content = self.model_dump()
        for owner in (*content["servers"], *content["parties"]):
            owner.pop("url", None)
            owner.pop("data", None)
            owner.pop("account", None)
            owner.pop("block", None)
        return hashlib.sha256(to_text(content).encode()).digest()

    @property
    def roster(self) -> Roster:
        """The parties of a secure aggregation.

        Raises:
            clipless.errors.FederationError: ``colluding`` and ``needed`` do not fit their number.
        """
        names = tuple(party.name for party in self.parties)
        return Roster(names, tuple(map(self.key_of, names)), self.colluding, self.needed)

    @property
    def releases(self) -> "tuple[CurveRelease, ...]":
        """What is released, in the order of ``curves``."""
        share, relation = self.epsilon / len(self.curves), Relation(self.relation)
        return tuple(self._release(curve, share, relation) for curve in self.curves)

    def _release(self, curve: CurveName, epsilon: float, relation: Relation) -> "CurveRelease":
        if curve == "roc":
            domain = Domain.probabilities(self.levels)
            return CurveRelease(curve, domain, domain.score_query(self.thresholds, epsilon, relation))
        domain = Domain.radii(self.levels, self.radius)
        return CurveRelease(curve, domain, domain.radius_query(self.thresholds, epsilon, relation))

    def form(self, release: "CurveRelease") -> Upload:
        """Return the form of keys for a release."""
        capacity = tuple((party.name, party.rows) for party in self.parties)
        return Upload(self.levels, release.query.groups, capacity)

    def rows_of(self, names: Sequence[str]) -> int:
        """Return how many rows, or units, some parties have, as declared."""
        return sum(self.party(name).rows for name in names)


@dataclass(frozen=True, slots=True)
class CurveRelease:
    """One curve."""

    curve: CurveName  # its name
    domain: Domain  # where values of rows have their places
    query: Query  # what is asked of the parties

    @property
    def thresholds(self) -> Floats:
        """The thresholds of the query."""
        return self.domain.thresholds[list(self.query.thresholds)]


def read_federation(path: Path) -> Federation:
    """Read a file of a federation; paths of data, and of accounts, are relative to it.

    Raises:
        SpecError: the file cannot be read, or is none.
    """
    found = parse_federation(read_mapping(path), str(path))
    return found.model_copy(update={"parties": [_beside(path, party) for party in found.parties]})


def _beside(path: Path, party: Party) -> Party:
    data = {} if party.data is None else {"data": str(path.parent / party.data)}
    account = {} if party.account is None else {"account": str(find_account(party.account, str(path)))}
    return party.model_copy(update={**data, **account})


def parse_federation(content: dict[str, Any], source: str) -> Federation:
    """Return the federation that a mapping describes; ``source`` names it in messages.

    Raises:
        SpecError: it is none.
    """
    try:
        return Federation.model_validate(content)
    except ValidationError as error:
        raise SpecError(*sentences(error, source, Federation)) from None
