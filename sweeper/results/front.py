"""The result of a sweep: every point, which are on the front, what that costs, and on which conditions.

``front.json`` is read by other tools: its schema has a version, and another version is refused rather than
guessed. Its prices are those of the first ``ledger_entries`` rows of the ledger; `read_front` returns those of
the ledger as it is now, which is ahead of the front while trials run, and after a kill for good.

The gate is here: points of a trial of which an audit contradicts a claim are on no front. What refuses them is both in
``front.json`` and in the evidence beside it (`sweeper.store.evidence`); either is enough.
"""

import contextlib
import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import accumulate, compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from sweeper.errors import RecordError
from sweeper.pareto.dominance import Box, box_from_json, front_mask, hypervolume
from sweeper.pareto.knee import knee
from sweeper.privacy.claims import Claim
from sweeper.privacy.pricing import Price
from sweeper.records import Objective, Point, PointKey, Trial, trial_number
from sweeper.specification.fields.nested import flatten
from sweeper.store.evidence import read_refusals, refusal
from sweeper.store.jsonl import read_object, replace_file, to_lines
from sweeper.store.sweep_folder import SweepFolder, check_may_be_seen, point_to_json

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
ACCOUNTANT = "the smaller of RDP (autodp) and pessimistic PLD (dp-accounting), both upper bounds"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontTrial:
    """What a reader of a front needs to know of a trial; ``None`` where no plan was made."""

    config: Mapping[str, Any]
    run_id: str | None = None
    delta: float | None = None
    relation: str | None = None
    accountant: str | None = None
    sampling: Mapping[str, Any] | None = None
    noise_multiplier: float | None = None
    status: str
    reason: str = ""

    @classmethod
    def of(cls, trial: Trial) -> "FrontTrial":
        """Summarise a trial."""
        summary = cls(config=trial.config, run_id=trial.run_id, status=trial.status.value, reason=trial.reason)
        plan = trial.plan
        if plan is None:
            return summary
        kept = ("sampling_rate", "batch_size", "steps_per_epoch", "epochs", "population")
        return replace(
            summary,
            delta=plan.delta,
            relation=plan.relation.value,
            accountant=ACCOUNTANT,
            sampling={"kind": "poisson", **{key: getattr(plan, key) for key in kept}},
            noise_multiplier=plan.noise_multiplier,
        )

    def refused(self, why: str | None) -> "FrontTrial":
        """Return the trial with why an audit refuses it in front of what else there is to say of its end."""
        if why is None or why in self.reason:
            return self
        return replace(self, reason="; ".join(filter(None, (why, self.reason))))

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, kw_only=True)
class Front:
    """The result of a sweep.

    Attributes:
        points: every point of every trial.
        on_front: keys of the points that no other dominates, by validation values, among those that no audit refuses.
        hypervolume: share of ``box`` that the front dominates.
        box: where the hypervolume was measured.
        ledger: what releasing the winner, the front and everything costs.
        ledger_entries: how many rows of the ledger are priced, ``None`` where that is not known.
        stages: the number of trials of each stage of the sweep's budget, in order; empty where it was not cut.
        refused: why audits refuse points, by trial, or under an empty text for every point of the sweep.
    """

    sweep: str
    objectives: tuple[Objective, ...]
    trials: Mapping[str, FrontTrial]
    points: tuple[Point, ...]
    on_front: frozenset[PointKey]
    hypervolume: float
    box: Box
    ledger: Mapping[str, Price]
    claim: Claim
    ledger_entries: int | None = None
    stages: tuple[int, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def price(self) -> Price | None:
        """What releasing a model costs that was chosen after a look at this sweep, None where it is not known."""
        price = self.ledger.get("winner")
        return price if price is not None and price.released else None

    def stage_of(self, trial: str) -> int | None:
        """Return the stage of a trial from 0, None where the budget was not cut or no slot of it is the trial's."""
        if not trial.removeprefix("t").isdecimal():
            return None
        number, ends = trial_number(trial), accumulate(self.stages)
        return next((stage for stage, end in enumerate(ends) if number <= end), None)

    @property
    def front_points(self) -> tuple[Point, ...]:
        """The points on the front, smallest epsilon first."""
        points = (point for point in self.points if point.key in self.on_front)
        return tuple(sorted(points, key=lambda point: (point.values.get("epsilon", 0.0), point.key)))

    @cached_property
    def knee(self) -> Point | None:
        """The knee of the front, see `sweeper.pareto.knee`; None where it has none."""
        return knee([point for point in self.points if point.key in self.on_front], self.objectives, self.box)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``front.json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "sweep": self.sweep,
            "objectives": [{"name": o.name, "direction": o.direction.value} for o in self.objectives],
            "trials": {id_: trial.to_json() for id_, trial in self.trials.items()},
            "points": [{**point_to_json(p), "on_front": p.key in self.on_front} for p in self.points],
            "hypervolume": {
                "value": self.hypervolume,
                "reference": dict(self.box.reference),
                "ideal": dict(self.box.ideal),
                "log_epsilon": self.box.log_epsilon,
            },
            "knee": None
            if self.knee is None
            else dict(zip(("trial", "epoch", "made_from"), self.knee.key, strict=True)),
            "ledger": {question: answer.to_json() for question, answer in self.ledger.items()},
            "claim": self.claim.to_json(),
            "ledger_entries": self.ledger_entries,
            "stages": list(self.stages),
            "refused": dict(self.refused),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return one flat row per point, the trial's end and configuration in it, and what releasing it would cost."""
        after = {} if self.price is None else {"epsilon.after-the-sweep": self.price.epsilon}
        for point in self.points:
            trial = self.trials[point.trial]
            yield {
                "trial": point.trial,
                "epoch": point.epoch,
                "made_from": point.made_from,
                "on_front": point.key in self.on_front,
                **dict(point.values),
                **{f"epsilon.{name}": value for name, value in point.accountants.items()},
                **after,
                **{f"deviation.{name}": point.deviation(name) for name in point.repeats},
                **{f"test.{name}": value for name, value in (point.test or {}).items()},
                **({} if point.classes is None else {"test.balanced-accuracy": point.classes.balanced_accuracy}),
                "model": point.model or "",
                "status": trial.status,
                **{f"config.{name}": value for name, value in flatten(trial.config).items()},
            }

    def plot(self, figure: str = "front") -> Any:
        """Return a figure of the front, by its name in `sweeper.results.exporters.figure_names`.

        Returns:
            A ``plotly.graph_objects.Figure``.

        Raises:
            UnknownFigureError: there is no such figure.
            SweeperError: nothing that draws is installed.
        """
        from sweeper.results.exporters import draw

        return draw(self, figure)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from sweeper.results.in_html import front_in_html

        return front_in_html(self)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return the rows as a table."""
        import pandas as pd

        return pd.DataFrame.from_records(list(self.rows()))

    def to_csv(self) -> str:
        """Return the rows as CSV; a value that a point lacks is an empty cell."""
        return csv_text(list(self.rows()))

    def write(self, path: str | Path) -> None:
        """Replace ``front.json``.

        Raises:
            RecordError: it could not be written.
        """
        replace_file(Path(path), to_lines(self.to_json()))


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV with one column per key; a value that a row lacks is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def build_front(
    *,
    sweep: str,
    objectives: Iterable[Objective],
    trials: Iterable[Trial],
    points: Iterable[Point],
    ledger: Mapping[str, Price],
    claim: Claim,
    ledger_entries: int | None = None,
    stages: Iterable[int] = (),
    refused: Mapping[str, str] | None = None,
) -> Front:
    """Find the front among the points that are not ``refused``, and join what a reader must know."""
    objectives = tuple(objectives)
    whole = Front(
        sweep=sweep,
        objectives=objectives,
        trials={trial.id: FrontTrial.of(trial) for trial in trials},
        points=tuple(points),
        on_front=frozenset(),
        hypervolume=0.0,
        box=Box.default(objectives),
        ledger=dict(ledger),
        claim=claim,
        ledger_entries=ledger_entries,
        stages=tuple(stages),
        refused=dict(refused or {}),
    )
    return gated(whole)


def gated(front: Front) -> Front:
    """Return a front with the points on it computed anew, and its trials with what refuses them.

    Guarantees:
        No point of a trial that an audit refuses is on it, nor in its hypervolume.
    """
    admitted = [point for point in front.points if refusal(front.refused, point.trial) is None]
    mask = front_mask(admitted, front.objectives)
    return replace(
        front,
        trials={id_: trial.refused(refusal(front.refused, id_)) for id_, trial in front.trials.items()},
        on_front=frozenset(point.key for point in compress(admitted, mask)),
        hypervolume=hypervolume(admitted, front.objectives, front.box),
    )


_FRONT = TypeAdapter(Front)
_MARKS = TypeAdapter(list[bool])


def read_front(path: str | Path) -> Front:
    """Read ``front.json``, with the prices of the ledger beside it as it is now.

    Raises:
        RecordError: missing, broken, or of another schema version; a ledger of another length is broken; or it is of a
            private selection that has not ended.
    """
    check_may_be_seen(Path(path).parent)
    content = read_object(Path(path))
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        remedy = "read it with the version of sweeper that wrote it, or run the sweep again"
        raise RecordError(f"Expected schema_version {SCHEMA_VERSION} in {path}, got {version!r}; {remedy}")
    try:
        volume, box = float(content["hypervolume"]["value"]), box_from_json(content["hypervolume"])
        front = _FRONT.validate_python(content | {"hypervolume": volume, "box": box, "on_front": ()})
        marks = _MARKS.validate_python([point["on_front"] for point in content["points"]])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise RecordError(f"{first['msg']} ({field} in {path}); write the front again") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"Expected a front in {path}, but {error!r}; write the front again") from None
    unknown = sorted({point.trial for point in front.points} - set(front.trials))
    if unknown:
        raise RecordError(f"Expected every trial of a point among the trials of {path}, got {unknown[0]!r}")
    on_front = frozenset(point.key for point in compress(front.points, marks))
    found = still_admitted(replace(front, on_front=on_front), Path(path).parent)
    return up_to_date(found, Path(path).with_name("ledger.jsonl"))


def refusals_before(folder: SweepFolder) -> dict[str, str]:
    """Return why audits refuse points of a sweep: by the evidence, or by its front where evidence was lost.

    Raises:
        RecordError: the evidence is broken.
    """
    written: Any = None
    with contextlib.suppress(RecordError):  # a front that is gone or broken will be written again
        written = read_object(folder.front).get("refused")
    said = written if isinstance(written, Mapping) else {}
    return {str(trial): str(why) for trial, why in said.items()} | read_refusals(folder.path)


def still_admitted(front: Front, folder: Path) -> Front:
    """Return a front without what audits refuse by now; what refused points when it was written still does.

    Raises:
        RecordError: the evidence in the folder is broken.
    """
    known = {**read_refusals(folder), **front.refused}
    stale = any(refusal(known, trial) is not None for trial, *_ in front.on_front)
    return gated(replace(front, refused=known)) if stale or known != front.refused else front


def up_to_date(front: Front, ledger: Path) -> Front:
    """Return a front with the prices of its ledger as it is now.

    Raises:
        RecordError: a ledger that is ahead of the front is broken.
    """
    delta = next((answer.delta for answer in front.ledger.values()), None)
    newer = None if delta is None else newer_prices(ledger, front.ledger_entries, delta)
    return front if newer is None else replace(front, ledger=newer)


def newer_prices(ledger: Path, rows: int | None, delta: float) -> Mapping[str, Price] | None:
    """Return the prices of a ledger as it is now, ``None`` if it is as far as a front says.

    ``rows`` of the ledger are those that the front prices. A file that is gone has nothing newer.

    Raises:
        RecordError: it is ahead, and broken; or it has lost rows, so that the price is not known.
    """
    try:
        status, found = ledger.stat(), ledger.read_bytes().count(b"\n")
    except OSError:
        return None
    if found == rows:
        return None
    if rows is not None and found < rows:
        raise RecordError(f"Expected at least {rows} rows in {ledger}, which the front prices, got {found}; restore it")
    return _prices(ledger, (status.st_mtime_ns, status.st_size, status.st_ino), delta)


@lru_cache(maxsize=32)
def _prices(ledger: Path, _version: tuple[int, ...], delta: float) -> Mapping[str, Price]:
    from sweeper.privacy.ledger import Ledger  # its accounting takes seconds to import, and few fronts are behind

    return Ledger(ledger).answers(delta)
