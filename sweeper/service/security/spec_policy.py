"""Specs that come over the network: what they may name, and nothing else.

A spec names data, architectures, losses, metrics and samplers that are installed here. A table of one's own must lie in
the service's data folder and be declared there, an earlier sweep among the service's sweeps. No path leads elsewhere,
nothing is fetched that the service was not told to fetch, and nothing is imported because a request names it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipless import datasets
from sweeper.errors import RefusalError, SpecError, UnknownSweepError
from sweeper.privacy.pricing import FOR_ALL, GROWS, state_unproven
from sweeper.rounding import round_up
from sweeper.service.catalog import Catalog, is_name
from sweeper.service.security.declared_accounts import charged_account
from sweeper.service.security.declared_tables import SOURCE, find_table
from sweeper.service.settings import ServiceSettings
from sweeper.specification.fields.ranges import largest
from sweeper.specification.search import MLFLOW, Selection
from sweeper.specification.spec import Spec, chosen_by_results
from sweeper.specification.yaml_file import MAX_DEPTH, parse_mapping

MAX_SPEC_BYTES = 65_536  # of a request to the API: YAML is parsed in time that grows with it
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/plain")
JSON_TYPES = ("application/json",)
_OF_AN_ENCODER = ("module", "file", "licence", "pretrained_on", "sha256")  # what its operator would have to declare
_PLUGIN = "plug-in "  # how the descriptions of data sets begin that may hold private rows
_FETCHED = "OpenML"  # in the descriptions of data sets that can be fetched
_DELTA = "privacy.delta"


@dataclass(frozen=True, slots=True)
class AcceptedSpec:
    """A spec that came over the network, and names nothing that it may not."""

    spec: Spec

    @property
    def name(self) -> str:
        """The name of the sweep."""
        return self.spec.name

    @property
    def trials(self) -> int:
        """How many trials it runs."""
        return self.spec.trials

    @property
    def text(self) -> str:
        """The whole spec as YAML."""
        return self.spec.to_yaml()

    @property
    def digest(self) -> str:
        """A hash of everything that it says."""
        return self.spec.digest()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of this machine that it names, with its table first; none for data that are registered."""
        return tuple(Path(path) for path in (self.spec.data.path, self.spec.data.ranges) if path is not None)

    @property
    def price(self) -> str:
        """What the sweep will cost, in words, from the spec alone; exactly where it has a budget."""
        return _price_in_words(self.spec)

    @property
    def epsilon(self) -> float | None:
        """The price as a number, ``None`` where nothing fixes it before the sweep begins."""
        epsilon = self.spec.privacy.sweep_epsilon
        return None if epsilon is None else float(epsilon)

    @property
    def delta(self) -> float | None:
        """The delta of that price, ``None`` where the spec leaves it to its data."""
        return None if _DELTA in self.spec.left_out else self.spec.privacy.delta

    @property
    def account(self) -> str | None:
        """The account that it is charged to, as the operator declares it for its data; ``None`` without one."""
        return self.spec.privacy.account


def read_spec(body: bytes, media_type: str, settings: ServiceSettings, catalog: Catalog) -> AcceptedSpec:
    """Return the spec in a request, with what it names found.

    Raises:
        RefusalError: another media type.
        SpecError: not a spec, or one that names something it may not.
    """
    kind = media_type.partition(";")[0].strip().lower()
    if kind not in (*YAML_TYPES, *JSON_TYPES):
        raise RefusalError(f"Expected a spec as {JSON_TYPES[0]} or {YAML_TYPES[0]} (Content-Type)", 415)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(f"Expected UTF-8 text as {SOURCE}, got other bytes") from None
    try:
        content = _json(text) if kind in JSON_TYPES else parse_mapping(text, SOURCE)
        "".join(_texts(content)).encode()
        return AcceptedSpec(_locate_files(Spec.from_mapping(content, SOURCE), settings, catalog))
    except UnicodeEncodeError:
        raise SpecError(f"Expected text that can be written as UTF-8 in {SOURCE}, got half of a character") from None
    except (ArithmeticError, RecursionError):
        raise SpecError(f"Expected numbers within the range of a computer in {SOURCE}") from None


def _json(text: str) -> dict[str, Any]:
    """Read JSON with the refusals of `yaml_file`: duplicate keys, odd numbers, bottomless nesting."""
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_odd)
    except RecursionError:
        raise SpecError(f"Expected JSON nested at most {MAX_DEPTH} deep as {SOURCE}") from None
    except ValueError as error:
        raise SpecError(f"Expected JSON as {SOURCE}, but {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise SpecError(f"Expected a mapping of keys to values as {SOURCE}, got {type(content).__name__}")
    if _depth(content) > MAX_DEPTH:
        raise SpecError(f"Expected JSON nested at most {MAX_DEPTH} deep as {SOURCE}")
    return content


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key occurs twice")
    return made


def _odd(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        if isinstance(value, dict):
            yield from value
            value = value.values()
        for inner in value:
            yield from _texts(inner)


def _locate_files(spec: Spec, settings: ServiceSettings, catalog: Catalog) -> Spec:
    """Return the spec with the paths of what it names."""
    if spec.search.selection is Selection.PRIVATE and settings.cluster is not None:
        raise spec.mistaken(
            "no private selection in a service that trains on a cluster, where others could count its trials",
            "search.selection",
            spec.search.selection.value,
            "run it with sweeper run on a machine of your own",
        )
    if spec.search.selection is Selection.PRIVATE and not settings.duration_is_seen:
        raise spec.mistaken(
            "no private selection in a service, where others see how long it takes",
            "search.selection",
            spec.search.selection.value,
            "run it with sweeper run, or serve with --duration-is-seen",
        )
    if spec.data.features is not None:
        _check_encoder(spec)
    content = spec.to_plain()
    data, search = content["data"], content["search"]
    if spec.data.name is not None:
        _check_registered(spec, settings)
    if spec.data.path is not None:
        data["path"], data["ranges"] = map(str, find_table(spec.data, settings.data_dir))
    if search.get("warm_start") is not None:
        search["warm_start"] = str(_earlier(spec, catalog))
    found = Spec.from_mapping(content, SOURCE)
    account = charged_account(found, settings)
    if account == found.privacy.account:
        return found
    content["privacy"]["account"] = account
    return Spec.from_mapping(content, SOURCE)


def _check_encoder(spec: Spec) -> None:
    """Refuse an encoder that a request names by its code or its file, or declares, and one that nobody declares."""
    features = spec.data.features
    named = {} if features is None else features.model_dump(exclude_none=True)
    given = next((key for key in _OF_AN_ENCODER if key in named), None)
    if given is not None or named.get("name") not in datasets.known_encoders():
        expected = f"an encoder by its name alone, {' or '.join(datasets.known_encoders())}: a service imports and "
        expected += "opens nothing that a request names"
        raise spec.mistaken(expected, f"data.features.{given or 'name'}", named.get(given or "name"))


def _check_registered(spec: Spec, settings: ServiceSettings) -> None:
    """Refuse a name that is none: it could be read as a path."""
    name, known = str(spec.data.name), datasets.available()
    if name not in known:
        raise spec.mistaken("a data set by its registered name", "data.name", remedy="see sweeper data list")
    for key in ("evaluation", "splits"):
        if known[name].startswith(_PLUGIN) and getattr(spec.data, key) is not None:
            raise spec.mistaken(
                f"no {key} for the data set of a plug-in, which declares its own", f"data.{key}", remedy="leave it out"
            )
    if _FETCHED in known[name] and settings.data_dir is None and not settings.allow_fetch:
        raise spec.mistaken(
            f"a data set that the service has; {name} would be fetched from the network",
            "data.name",
            remedy="serve with --data-dir or --allow-fetch",
        )


def _earlier(spec: Spec, catalog: Catalog) -> Path:
    name = str(spec.search.warm_start)
    if name.startswith(MLFLOW) or not is_name(name):
        raise spec.mistaken("the name of a sweep of this service", "search.warm_start")
    try:
        return catalog.folder(name).path
    except UnknownSweepError:
        raise spec.mistaken("the name of a sweep of this service", "search.warm_start") from None


def _price_in_words(spec: Spec) -> str:
    """Return what a sweep of this spec will cost, in words: exactly where it has a budget."""
    privacy = spec.privacy
    if spec.search.repetitions is not None:
        return "Price: of the winner, and nothing else leaves; its driver states it before the first trial."
    is_known = _DELTA not in spec.left_out
    at = f"at delta {privacy.delta!r}" if is_known else "at the delta that its driver chooses for the number of rows"
    if privacy.sweep_epsilon is not None:
        return (
            f"Price: at most epsilon {round_up(privacy.sweep_epsilon)} {at}, {FOR_ALL}, however results are used. It "
            "is fixed before the first result."
        )
    trials, each = ("1 trial", ", ") if spec.trials == 1 else (f"{spec.trials} trials", ", each ")
    each += f"{at}" if privacy.epsilon is None else f"up to epsilon {round_up(float(largest(privacy.epsilon)))} {at}"
    return (
        f"Price: the composition of {trials}{each}, {FOR_ALL}. {GROWS} privacy.sweep_epsilon in the spec fixes it "
        f"beforehand. {state_unproven(chosen_by_results(spec)) or ''}"
    ).rstrip()
