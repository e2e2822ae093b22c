"""What ``front.json`` holds: every point of a sweep, which are on the front, what that costs, on which conditions."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sweeper.adapters import WHEN_KNOWN, dump
from sweeper.calls import called_by_users
from sweeper.pareto.dominance import Box, hypervolume_interval
from sweeper.pareto.knee import knee
from sweeper.privacy.claims import Claim
from sweeper.privacy.pricing import Price
from sweeper.records import (
    ConfigValues,
    Interval,
    NoisyScores,
    Objective,
    Point,
    PointKey,
    Scalar,
    SmoothedCounts,
    Trial,
    trial_number,
)
from sweeper.rounding import in_brackets
from sweeper.specification.fields.nested import flatten
from sweeper.store.jsonl import replace_file, to_lines

if TYPE_CHECKING:
    import pandas as pd

SCHEMA_VERSION = 1
ACCOUNTANT = "the smaller of RDP (autodp) and pessimistic PLD (dp-accounting), both upper bounds"

POINT_COLUMNS = ("trial", "epoch", "made_from", "on_front", "price")  # of every table of points


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontTrial:
    """What a reader of a front needs to know of a trial; ``None`` where no plan was made.

    ``begun`` is false of one that had drawn no noise yet when the front was made, and not said of others.
    """

    config: ConfigValues
    run_id: str | None = None
    delta: float | None = None
    relation: str | None = None
    accountant: str | None = None
    sampling: Mapping[str, Scalar] | None = None
    noise_multiplier: float | None = None
    status: str
    reason: str = ""
    begun: Annotated[bool | None, WHEN_KNOWN] = None

    @classmethod
    def of(cls, trial: Trial, *, begun: bool = True) -> "FrontTrial":
        """Summarise a trial."""
        summary = cls(
            config=trial.config,
            run_id=trial.run_id,
            status=trial.status.value,
            reason=trial.reason,
            begun=None if begun else False,
        )
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


@dataclass(frozen=True, kw_only=True)
class FrontRecord:
    """A front as a value.

    Attributes:
        points: every point of every trial, or those of the front alone; see ``of_points``.
        on_front: keys of the points that no other dominates, by validation values, among those that no audit refuses;
            see `sweeper.pareto.dominance.front_mask`.
        hypervolume: share of ``box`` that the front dominates.
        box: where the hypervolume was measured.
        ledger: the price of the winner, of the front and of all.
        ledger_entries: how many rows of the ledger are priced, ``None`` where that is not known.
        stages: the number of trials of each stage of the sweep's budget, in order; empty where it was not cut.
        refused: why audits refuse points, by trial, or under an empty text for every point of the sweep.
        of_points: how many points the sweep has, where ``points`` are those of the front alone; ``None`` otherwise.
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
    of_points: int | None = None

    @property
    def total(self) -> int:
        """How many points the sweep has."""
        return len(self.points) if self.of_points is None else self.of_points

    @property
    def trials_begun(self) -> int:
        """How many trials have drawn noise, or ended by themselves; of a sweep that was halted some never began."""
        return sum(trial.begun is not False for trial in self.trials.values())

    @property
    def price(self) -> Price | None:
        """The price of the sweep, of its winner alone where nothing else leaves; None where it is not known."""
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
    def hypervolume_interval(self) -> Interval | None:
        """What the models of the front truly dominate, at 95 %, None where scores are not noisy."""
        return hypervolume_interval(self.front_points, self.objectives, self.box, among=self.total)

    @property
    def hypervolume_in_words(self) -> str:
        """The hypervolume, with its interval where scores are noisy."""
        return f"{self.hypervolume:.3f}{in_brackets(self.hypervolume_interval)}"

    @cached_property
    def knee(self) -> Point | None:
        """The knee, see `sweeper.pareto.knee`, among points that beat the majority-class baseline; None without one."""
        utility = next((one.name for one in self.objectives if one.name != "epsilon"), "")
        ends = self.claim.baselines.ends(utility)
        points = [point for point in self.points if point.key in self.on_front]
        beating = [point for point in points if ends is None or point.values.get(utility, -inf) > ends[1]]
        return knee(beating, self.objectives, self.box)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``front.json``."""
        return {
            "schema_version": SCHEMA_VERSION,
            "sweep": self.sweep,
            "objectives": list(map(dump, self.objectives)),
            "trials": {id_: dump(trial) for id_, trial in self.trials.items()},
            "points": [{**dump(p), "on_front": p.key in self.on_front} for p in self.points],
            "hypervolume": {
                "value": self.hypervolume,
                "reference": dict(self.box.reference),
                "ideal": dict(self.box.ideal),
                "log_epsilon": self.box.log_epsilon,
                **({"interval": list(self.hypervolume_interval)} if self.hypervolume_interval else {}),
            },
            "knee": None
            if self.knee is None
            else dict(zip(("trial", "epoch", "made_from"), self.knee.key, strict=True)),
            "ledger": {question: dump(answer) for question, answer in self.ledger.items()},
            "claim": self.claim.to_json(),
            "ledger_entries": self.ledger_entries,
            "stages": list(self.stages),
            "refused": dict(self.refused),
        }

    @property
    def is_proven(self) -> bool:
        """Whether its price is known and holds: nothing is exploratory, steered by results, or perhaps a copy."""
        return self.price is not None and not self.price.unproven and not self.claim.exploratory

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return one flat row per point: its trial's end and configuration, the price, and the account's claim."""
        price: dict[str, str | float] = {}
        price |= {} if self.price is None else _price_columns(self.price, proven=self.is_proven)
        price |= {} if self.claim.account is None else self.claim.account.to_columns()
        for point in self.points:
            trial = self.trials[point.trial]
            yield {
                "trial": point.trial,
                "epoch": point.epoch,
                "made_from": point.made_from,
                "on_front": point.key in self.on_front,
                **dict(point.values),
                **{f"epsilon.{name}": value for name, value in point.accountants.items()},
                **({} if point.risk is None else point.risk.to_values()),
                **price,
                **{f"deviation.{name}": point.deviation(name) for name in point.repeats},
                **{f"test.{name}": value for name, value in (point.test or {}).items()},
                **({} if point.noisy is None else _noise_columns(point.noisy)),
                **({} if point.classes is None else {"test.balanced-accuracy": point.classes.balanced_accuracy}),
                **({} if point.smoothed is None else _smoothed_columns(point.smoothed)),
                "model": point.model or "",
                "status": trial.status,
                **{f"config.{name}": value for name, value in flatten(trial.config).items()},
            }

    @called_by_users()
    def to_dataframe(self, *, constants: bool = False) -> "pd.DataFrame":
        """Return the rows as a table.

        What all points share is in its ``attrs``, by column, rather than repeated in each row; with ``constants`` it is
        columns too. Name, values and test scores of a point, and the price, are columns always.
        """
        rows = list(self.rows())
        frame = frame_of(rows, constants=True)
        if constants or len(rows) < 2:
            return frame
        named = {*POINT_COLUMNS, *(one.name for one in self.objectives)}
        shared = [
            name
            for name in frame.columns
            if name not in named and not name.startswith("test.") and frame[name].astype(str).nunique(dropna=False) == 1
        ]
        varying = frame.drop(columns=shared)
        varying.attrs = {name: frame[name].iloc[0] for name in shared}
        return varying

    def to_csv(self) -> str:
        """Return the rows as CSV; a value that a point lacks is an empty cell."""
        return csv_text(list(self.rows()))

    def write(self, path: str | Path) -> None:
        """Replace ``front.json``.

        Raises:
            RecordError: it could not be written.
        """
        replace_file(Path(path), to_lines(self.to_json()))


def _price_columns(price: Price, *, proven: bool) -> dict[str, float | bool]:
    meant = {} if price.exposure is None else price.exposure.to_values()
    means = {f"price.{name}": value for name, value in meant.items()}
    return {"price": price.epsilon, "price.proven": proven, **means}


def _smoothed_columns(smoothed: SmoothedCounts) -> dict[str, float]:
    """Return how smoothed certificates of test rows were made."""
    return {f"test.smoothed.{name}": value for name, value in asdict(smoothed).items()}


def _noise_columns(noisy: NoisyScores) -> dict[str, float]:
    """Return the ends of the intervals of noisy scores, and these as they were released."""
    columns: dict[str, float] = {}
    for prefix, intervals in (("", noisy.intervals), ("test.", noisy.test_intervals)):
        for name, (low, high) in intervals.items():
            columns |= {f"low.{prefix}{name}": low, f"high.{prefix}{name}": high}
    for prefix, released in (("", noisy.released), ("test.", noisy.test_released)):
        columns |= {f"released.{prefix}{name}": value for name, value in released.items()}
    return columns


def frame_of(rows: Sequence[Mapping[str, object]], *, constants: bool = False) -> "pd.DataFrame":
    """Return rows as a table, hyperparameters that vary before the others; these only with ``constants``.

    Of one row all are kept: nothing says which of them vary.
    """
    import pandas as pd

    frame = pd.DataFrame.from_records(list(rows))
    configured = [name for name in frame.columns if str(name).startswith("config.")]
    fixed = [name for name in configured if len(frame) > 1 and frame[name].astype(str).nunique(dropna=False) == 1]
    others = [name for name in frame.columns if name not in fixed]
    return frame[[*others, *fixed] if constants else others]


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV with one column per key; a value that a row lacks is an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
