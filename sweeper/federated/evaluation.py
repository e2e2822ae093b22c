"""What is asked of the servers, the curves that are made of their answers, and what is printed of them."""

import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clipless.curves.certified import CertifiedCurve
from clipless.curves.classes import ClassCurves
from clipless.datasets.metadata import units_word
from clipless.errors import FederationError
from clipless.federated.function_sharing import SERVERS, agreed_parties, combine
from clipless.federated.primitives import Identity, Words, from_words
from clipless.federated.query import SharedLaplace
from clipless.federated.ustat import Sums
from sweeper.federated.connection import Conversation
from sweeper.federated.federation import ANALYST, CurveRelease, Federation
from sweeper.federated.services import EVALUATE, HELD, RESULT
from sweeper.rounding import round_up

EVALUATION_VERSION = 1
_SHOWN_RADII = 6
_TRUST = {
    "curator": "The parties trusted the curator with their counts.",
    "aggregation": (
        "It holds towards the server and any {colluding} parties together, if the others follow the protocol."
    ),
    "function-sharing": "It holds towards either server and any parties together, if the two servers do not collude.",
}

_NO_LEDGER = (
    "No ledger keeps this{of}: epsilons of several evaluations of the same rows on one machine add up, uncounted. Name "
    "the account of each party's rows (parties.account)."
)


@dataclass(frozen=True)
class FederatedEvaluation:
    """A released evaluation."""

    federation: Federation  # who took part, and what it cost
    sums: Mapping[str, tuple[CurveRelease, Sums]]  # by curve
    included: tuple[str, ...]  # the parties whose rows are in all curves
    refused: Mapping[str, str] = field(default_factory=dict)  # why messages of parties were not taken
    bits: int = 0  # that went to and from whoever asked for the result
    seconds: float = 0.0  # that it took after the parties had sent what they send
    unkept: tuple[str, ...] = ()  # the parties of which neither a ledger nor an account keeps what it cost

    @property
    def population(self) -> int:
        """The declared number of rows, or units, of the parties that are included."""
        return self.federation.rows_of(self.included)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The parties whose rows are in no curve."""
        return tuple(party.name for party in self.federation.parties if party.name not in self.included)

    @property
    def statement(self) -> str:
        """What it costs and towards whom, in sentences."""
        trust = _TRUST[self.federation.protocol].format(colluding=self.federation.colluding)
        unit, every = self.federation.unit, len(self.unkept) == len(self.federation.parties)
        of = "" if every else f" for {', '.join(self.unkept)}"
        kept = f" {_NO_LEDGER.format(of=of)}" if self.unkept else ""
        whom = "row of a party" if unit is None else f"value of {unit!r} with all its rows at one party"
        return (
            f"All of it together is {round_up(self.federation.epsilon)}-differentially private for each {whom} "
            f"({self.federation.relation}, numbers of {self.counted} as declared). {trust} A row that the model was "
            f"trained on pays the model's epsilon as well.{kept}"
        )

    @property
    def counted(self) -> str:
        """What the parties count."""
        return units_word(self.federation.unit or "row")

    def certified(self) -> CertifiedCurve | None:
        """Return certified accuracy, if it was asked for."""
        if "certified" not in self.sums:
            return None
        release, sums = self.sums["certified"]
        return release.domain.certified_curve(release.query, sums, self.population)

    def classes(self) -> ClassCurves | None:
        """Return the curves of both classes, if they were asked for."""
        if "roc" not in self.sums:
            return None
        release, sums = self.sums["roc"]
        return release.domain.class_curves(release.query, sums)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        content: dict[str, Any] = {
            "evaluation_version": EVALUATION_VERSION,
            "protocol": self.federation.protocol,
            "epsilon": self.federation.epsilon,
            "relation": self.federation.relation,
            "statement": self.statement,
            "included": list(self.included),
            "left_out": list(self.left_out),
            "refused": dict(self.refused),
            "rows": self.population,
            "seconds": round(self.seconds, 3),
        }
        certified, classes = self.certified(), self.classes()
        return {
            **content,
            **({} if certified is None else _certified_json(certified)),
            **({} if classes is None else _roc_json(classes)),
        }


def _certified_json(curve: CertifiedCurve) -> dict[str, Any]:
    band, smooth = curve.curve.band(), curve.smooth()
    return {
        "accuracy": smooth.accuracy,
        "certified": [
            {"radius": float(radius), "share": float(share)}
            for radius, share in zip(smooth.radii, smooth.certified, strict=True)
        ],
        "certified_band": band,
    }


def _roc_json(curves: ClassCurves) -> dict[str, Any]:
    false, true = curves.smooth().roc()
    return {
        "auroc": curves.auroc(),
        "auroc_interval": list(curves.auroc_interval()),
        "roc": [{"false": float(x), "true": float(y)} for x, y in zip(false, true, strict=True)],
    }


def ask(federation: Federation, identity: Identity) -> FederatedEvaluation:
    """Ask the servers for the result, once the parties have sent what they send.

    Raises:
        SweeperError: a server cannot be reached.
        clipless.errors.FederationError: there is no result.
    """
    federation.check_complete()
    ends = [Conversation.to(federation, server.name, ANALYST, identity) for server in federation.servers]
    began = time.perf_counter()
    made = (
        _ask_key_servers(federation, ends)
        if federation.protocol == "function-sharing"
        else _ask_one(federation, ends[0])
    )
    sums, some, refused = made
    included = tuple(party.name for party in federation.parties if party.name in some)
    if not included:
        raise FederationError("Expected rows of some party, got none" + "".join(f"; {why}" for why in refused.values()))
    bits, seconds = sum(end.bits for end in ends), time.perf_counter() - began
    return FederatedEvaluation(federation, sums, included, refused, bits, seconds)


Made = tuple[dict[str, tuple[CurveRelease, Sums]], tuple[str, ...], dict[str, str]]


def _ask_one(federation: Federation, end: Conversation) -> Made:
    """The result of a curator or of a secure aggregation."""
    content = json.loads(end.ask(RESULT))
    included = tuple(content["included"])
    words, start = np.array(content["words"], dtype=np.uint32), 0
    sums: dict[str, tuple[CurveRelease, Sums]] = {}
    for release in federation.releases:
        blocks = from_words(words[start : start + release.query.size]).reshape(release.query.groups, -1)
        counts = release.query.reconcile(blocks)
        sums[release.curve] = release, Sums(counts, included, _noise(federation, release, len(included)))
        start += release.query.size
    return sums, included, content["refused"]


def _noise(federation: Federation, release: CurveRelease, included: int) -> SharedLaplace:
    if federation.protocol == "aggregation":
        return release.query.noise_of(included, federation.roster.enough)
    return release.query.noise_of(1, 1)


def _ask_key_servers(federation: Federation, ends: list[Conversation]) -> Made:
    """The sums of both key servers over the parties that sent keys to both, each asked for at the same time."""
    first, second = (json.loads(end.ask(HELD)) for end in ends)
    refused = {**first["refused"], **second["refused"]}
    agreed = [
        agreed_parties(*({name: bytes.fromhex(key) for name, key in one.items()} for one in pair))
        for pair in zip(first["held"], second["held"], strict=True)
    ]
    included = tuple(name for name in agreed[0] if all(name in others for others in agreed))
    sums: dict[str, tuple[CurveRelease, Sums]] = {}
    for number, release in enumerate(federation.releases if included else ()):
        question = {
            "release": number,
            "thresholds": list(release.query.thresholds),
            "epsilon": release.query.epsilon,
            "parties": list(included),
        }
        counts = release.query.reconcile(combine(_both(ends, json.dumps(question).encode(), release)))
        sums[release.curve] = release, Sums(counts, included, release.query.noise_of(SERVERS, 1))
    return sums, included, refused


def _both(ends: list[Conversation], question: bytes, release: CurveRelease) -> tuple[Words, Words]:
    with ThreadPoolExecutor(SERVERS) as pool:
        answers = list(pool.map(lambda end: end.ask(EVALUATE, question), ends))
    shape = release.query.groups, -1
    for end, answer in zip(ends, answers, strict=True):
        if len(answer) != 4 * release.query.size:
            raise FederationError(f"Expected {release.query.size} words of the server at {end.url}, got others")
    first, second = (np.frombuffer(answer, dtype=np.uint32).reshape(shape) for answer in answers)
    return first, second


def evaluation_lines(found: FederatedEvaluation) -> Iterator[str]:
    """Yield what ``sweeper evaluate`` prints."""
    content = found.to_json()
    counted = f"{found.population} {found.counted} as declared"
    yield f"{len(found.included)} of {len(found.federation.parties)} parties, {counted}"
    if found.left_out:
        yield f"left out: {', '.join(found.left_out)}"
    yield from found.refused.values()
    if "auroc" in content:
        low, high = content["auroc_interval"]
        yield f"AUROC {content['auroc']:.3f} ({low:.3f} to {high:.3f} by the noise, about 95 %)"
    if "certified" in content:
        band, points = content["certified_band"], content["certified"]
        yield f"accuracy {content['accuracy']:.3f} (all of the curve within {band:.3f} by the noise, 95 %)"
        for point in points[:: max(1, len(points) // _SHOWN_RADII)][1:]:
            yield f"certified at {point['radius']:.3g}: {point['share']:.3f}"
    yield found.statement
