"""Sweeps side by side: hypervolume of each in one box, and the difference between specs over their runs.

Sweeps of one name are taken as runs of one spec, and it is said where they are not. Between two specs with several runs
each, the difference of the mean hypervolumes comes with Welch's 95 % interval and the p-value of Mann and Whitney's
rank test; with one run of either there is no telling a difference from luck, and none is claimed.

Epsilons of different delta or relation mean different things, and scores on different data are not comparable: such
sweeps are refused unless asked for, and then every difference between them is listed.
"""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import combinations
from math import fsum, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from clipless.datasets.metadata import units_word
from sweeper.calls import called_by_users
from sweeper.errors import SweeperError
from sweeper.markup import WIDTH, aligned, latex_table, paragraph, table
from sweeper.pareto.attainment import EPSILON, Surface, attainment
from sweeper.pareto.dominance import Box, hypervolume, hypervolume_interval
from sweeper.privacy.claims import COPIED
from sweeper.privacy.pricing import Price
from sweeper.records import Interval, Objective
from sweeper.results.exporters import Paper, draw
from sweeper.results.front import Front
from sweeper.results.highlights import best, shown_text
from sweeper.rounding import exactly, in_brackets, round_up
from sweeper.specification.fields.nested import flatten
from sweeper.specification.objectives import attack_radius, radius, smoothed_radius

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
PRICE = (
    "If you choose a model by comparing sweeps on the same data, it costs what all of them cost together, not the "
    "price of its own sweep"
)
ONE_RUN = "one run of a spec: no confidence can be given, and the difference may be luck"
# In what runs of one spec may differ.
_ASIDE = ("name", "search.seed", "privacy.account")
_MOST_KEYS = 3  # of those in which specs differ, in a sentence


class ComparisonError(SweeperError, ValueError):
    """Sweeps that cannot be compared, or should not be."""


@dataclass(frozen=True, slots=True)
class Run:
    """One sweep: what to call it, its front, and its hypervolume in the common box."""

    label: str
    front: Front
    hypervolume: float
    interval: Interval | None = None  # of the hypervolume, where scores are noisy


@dataclass(frozen=True, slots=True)
class Group:
    """The runs of one spec."""

    name: str
    runs: tuple[Run, ...]

    @property
    def volumes(self) -> tuple[float, ...]:
        """Hypervolume of each run."""
        return tuple(run.hypervolume for run in self.runs)

    @property
    def mean(self) -> float:
        """Mean hypervolume."""
        return float(np.mean(self.volumes))

    @property
    def price_in_words(self) -> str:
        """The price of one run, from the smallest to the largest."""
        return prices_in_words([run.front.price for run in self.runs])


def hypervolume_in_words(row: Mapping[str, Any]) -> str:
    """Return the hypervolume of a row of `Comparison.rows`, with its interval where scores are noisy."""
    return f"{row['hypervolume']:.4f}{in_brackets(row['hypervolume_interval'])}"


def price_of_row(row: Mapping[str, Any]) -> str:
    """Return the price of a row of `Comparison.rows`, and whether it is not proven."""
    if row["price"] is None:
        return "-"
    return f"{round_up(row['price'])}{'' if row['price_proven'] else ' (not proven)'}"


def prices_in_words(prices: Sequence[Price | None]) -> str:
    """Return the prices of sweeps, from the smallest to the largest; that they are unknown where one is."""
    known = sorted(price.epsilon for price in prices if price is not None)
    if not known or len(known) < len(prices):
        return "unknown price"
    doubt = max((price.doubt for price in prices if price is not None), key=len)
    return f"price: epsilon {' to '.join(dict.fromkeys(map(round_up, (known[0], known[-1]))))}{doubt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean hypervolume of one spec minus that of another."""

    first: str
    second: str
    mean: float
    prices: tuple[str, str] = ("", "")  # of a run of either, in words
    low: float | None = None  # lower end of its interval; None, like ``high`` and ``p``, with one run of either
    high: float | None = None
    p: float | None = None  # two-sided p-value of the rank test

    def __str__(self) -> str:
        first, second = (
            f"{name} ({price})" if price else name
            for name, price in zip((self.first, self.second), self.prices, strict=True)
        )
        words = f"hypervolume of {first} minus {second}: {self.mean:+.4f}"
        if self.low is None or self.high is None or self.p is None:
            return f"{words} ({ONE_RUN})"
        return f"{words}, {100 * CONFIDENCE:g} % interval {self.low:+.4f} to {self.high:+.4f}, p = {self.p:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Several sweeps, side by side."""

    objectives: tuple[Objective, ...]
    box: Box  # where every hypervolume was measured
    groups: tuple[Group, ...]
    differences: tuple[Difference, ...]
    conflicts: tuple[str, ...] = ()  # why the sweeps are not comparable, in sentences; empty unless that was asked for
    mixtures: tuple[str, ...] = ()  # which sweeps of one name are of different specs, in sentences

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run."""
        return tuple(run for group in self.groups for run in group.runs)

    @property
    def exploratory(self) -> bool:
        """Whether a sweep among them has no guarantee."""
        return any(run.front.claim.exploratory for run in self.runs)

    @property
    def utility(self) -> Objective:
        """The first objective that is not epsilon."""
        return next(objective for objective in self.objectives if objective != EPSILON)

    @property
    def price(self) -> Price | None:
        """What all sweeps cost together, at most: the sum of their epsilons, at the sum of their deltas.

        Basic composition (Dwork and Roth 2014, theorem B.1), on the conditions on which each price holds; composed
        ledgers would cost less. ``None`` where the price of a sweep is not known or has no guarantee, or where data or
        relation differ.
        """
        prices = [run.front.price for run in self.runs]
        kinds = {(*_relations(run.front), _data(run.front)) for run in self.runs}
        known = [one for one in prices if one is not None and isfinite(one.epsilon)]
        if self.exploratory or len(known) < len(prices) or len(kinds) > 1:
            return None
        epsilon = fsum(one.epsilon for one in known)
        delta = float(sum(Decimal(repr(one.delta)) for one in known))  # of declared numbers: three times 1e-05 is 3e-05
        unproven = next((one.unproven for one in known if one.unproven), None)
        return Price(epsilon=epsilon, delta=delta, events=sum(one.events for one in known), unproven=unproven)

    @property
    def price_in_words(self) -> str:
        """What a model costs that is chosen among the sweeps."""
        return f"{PRICE}: {self.bound}." if self.bound else f"{PRICE}."

    @property
    def bound(self) -> str:
        """The `price` in words, empty without one."""
        if self.price is None:
            return ""
        count = len(self.runs)
        added = "both" if count == 2 else f"all {count}"
        most = "about" if self.price.doubt else "at most"
        cost = f"epsilon {round_up(self.price.epsilon)} at delta {exactly(self.price.delta)}{self.price.doubt}"
        return f"{most} {cost} (sum of {added})"

    def surfaces(self) -> Mapping[str, tuple[Surface, ...]]:
        """Return what the runs of each spec attain, for specs with several runs."""
        found = {g.name: attainment([run.front.points for run in g.runs], self.utility) for g in self.groups}
        return {name: surfaces for name, surfaces in found.items() if surfaces}

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per run."""
        return [
            {
                "name": group.name,
                "sweep": run.label,
                "trials": run.front.trials_begun,
                "points": run.front.total,
                "on_front": len(run.front.on_front),
                "hypervolume": run.hypervolume,
                "hypervolume_interval": run.interval,
                "price": None if run.front.price is None else run.front.price.epsilon,
                "price_proven": run.front.is_proven,
                "delta": ", ".join(_deltas(run.front)),
                "relation": ", ".join(_relations(run.front)),
                "data": run.front.claim.data,
            }
            for group in self.groups
            for run in group.runs
        ]

    def to_dataframe(self) -> "pd.DataFrame":
        """Return `rows` as a table."""
        import pandas as pd

        return pd.DataFrame.from_records(self.rows())

    def __repr__(self) -> str:
        """Return what a terminal shows: a row for each sweep, the differences, and the price of a choice."""
        heads, cells = self.table()
        return "\n".join(
            [*aligned([heads, *cells]), *(line for text in self._sentences() for line in textwrap.wrap(text, WIDTH))]
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows, likewise."""
        heads, cells = self.table()
        return table(heads, cells) + "".join(map(paragraph, self._sentences()))

    @called_by_users()
    def plot(
        self,
        figure: str = "fronts",
        *,
        preset: str | None = None,
        width: float | None = None,
        font: float | None = None,
        title: bool = True,
        caption: bool = False,
    ) -> Any:
        """Return a figure of the comparison, by its name; args, returns and raises as those of `Front.plot`."""
        return draw(self, figure, Paper.of(preset, width, font, title=title, caption=caption))

    def to_latex(self) -> str:
        """Return the same as a table of LaTeX, the sentences as its caption."""
        sentences = (one if one.endswith(".") else f"{one}." for one in self._sentences())
        heads, rows = self.table()
        named = [[name, label.rpartition("/")[2], *others] for name, label, *others in rows]
        return latex_table(heads, named, " ".join(sentences), "comparison")

    def _sentences(self) -> list[str]:
        told = [*self.remarks, *map(str, self.differences), self.uncorrected, self.price_in_words]
        return [*filter(None, told)]

    @property
    def uncorrected(self) -> str:
        """Say that several p-values are not corrected for their number; empty where there are none."""
        told = sum(one.p is not None for one in self.differences)
        return "The p-values are not corrected for the number of pairs." if told > 1 else ""

    @property
    def remarks(self) -> list[str]:
        """What stands against the comparison, in sentences."""
        conflicts = [f"not comparable: {conflict}" for conflict in self.conflicts]
        copies = [f"{run.label}: {COPIED}" for run in self.runs if COPIED in run.front.claim.conditions]
        return [*conflicts, *self.mixtures, *(["exploratory: no guarantee"] * self.exploratory), *copies]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the heads and the rows of a table of the sweeps: the best score of each, hypervolume and price."""
        rows = [
            [
                *(str(row[key]) for key in ("name", "sweep", "trials")),
                self._best_of(run),
                hypervolume_in_words(row),
                price_of_row(row),
            ]
            for run, row in zip(self.runs, self.rows(), strict=True)
        ]
        return ["name", "sweep", "trials", f"best {self.utility.name}", "hypervolume", "price"], rows

    def _best_of(self, run: Run) -> str:
        """Return the score of the point of a front that validation rows chose, on test rows if it was scored there."""
        found = best(run.front.front_points, self.utility)
        return "-" if found is None else shown_text(found, self.utility.name, run.front.claim)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "objectives": [{"name": o.name, "direction": o.direction.value} for o in self.objectives],
            "box": {
                "reference": dict(self.box.reference),
                "ideal": dict(self.box.ideal),
                "log_epsilon": self.box.log_epsilon,
            },
            "runs": self.rows(),
            "differences": [{key: getattr(d, key) for key in Difference.__slots__} for d in self.differences],
            "attainment": {
                name: [{"name": s.name, "runs": s.count, "steps": [list(step) for step in s.steps]} for s in surfaces]
                for name, surfaces in self.surfaces().items()
            },
            "conflicts": list(self.conflicts),
            "mixtures": list(self.mixtures),
            "price": self.price_in_words,
            "together": None if self.price is None else {"epsilon": self.price.epsilon, "delta": self.price.delta},
        }


def compare(
    fronts: Sequence[tuple[str, Front]],
    *,
    anyway: bool = False,
    reference: Mapping[str, float] | None = None,
    log_epsilon: bool = True,
    specs: Mapping[str, Mapping[str, object]] | None = None,
) -> Comparison:
    """Compare sweeps.

    Args:
        fronts: what to call each sweep, and its front; at least two.
        anyway: compare sweeps that differ in delta, relation, data or objectives, by the objectives they share.
        reference: worst values that count, by objective; those of ``Box.default`` for the others.
        log_epsilon: epsilon is measured in its logarithm.
        specs: what each was run from, as it recorded that, where it is known.

    Raises:
        ComparisonError: fewer than two sweeps, sweeps that are not comparable, no shared objective beside epsilon, or
            a reference that is no value of the box.
    """
    if len({label for label, _ in fronts}) < 2:
        raise ComparisonError(f"Expected at least two different sweeps, got {len(fronts)}; name another folder")
    conflicts = _conflicts(fronts)
    if conflicts and not anyway:
        raise ComparisonError(
            f"{conflicts[0]}; --anyway (in Python anyway=True) compares them all the same, and says so"
        )
    objectives = _find_shared([front for _, front in fronts])
    box = _box(objectives, reference or {}, log_epsilon=log_epsilon)
    by_name: dict[str, list[Run]] = {}
    for label, front in fronts:
        interval = hypervolume_interval(front.front_points, objectives, box, among=front.total)
        run = Run(label, front, hypervolume(front.points, objectives, box), interval)
        by_name.setdefault(front.sweep, []).append(run)
    groups = tuple(Group(name, tuple(runs)) for name, runs in by_name.items())
    return Comparison(
        objectives=objectives,
        box=box,
        groups=groups,
        differences=tuple(_difference(a, b) for a, b in combinations(groups, 2)),
        conflicts=conflicts,
        mixtures=tuple(_find_mixtures(groups, specs or {})),
    )


def _find_mixtures(groups: Iterable[Group], specs: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Yield which sweeps of one name are of different specs: a mean over them is one of no spec."""
    for group in groups:
        known = {run.label: flatten(specs[run.label]) for run in group.runs if run.label in specs}
        first = next(iter(known), "")
        for label, spec in known.items():
            keys = dict.fromkeys([*known[first], *spec])
            differing = [one for one in keys if one not in _ASIDE and known[first].get(one) != spec.get(one)]
            if differing:
                more = len(differing) - _MOST_KEYS
                named = ", ".join(differing[:_MOST_KEYS]) + (f" and {more} more" if more > 0 else "")
                yield (
                    f"Sweeps of the name {group.name} are of different specs, and every mean over them mixes these: "
                    f"{first} and {label} differ in {named}"
                )
                break


def _conflicts(fronts: Sequence[tuple[str, Front]]) -> tuple[str, ...]:
    facts: dict[str, Callable[[Front], str]] = {
        "the same data": _data,
        "one delta": lambda front: ", ".join(_deltas(front)) or "none",
        "one relation": lambda front: ", ".join(_relations(front)) or "none",
        "one unit of radii": lambda front: front.claim.radius_unit,
        "the same objectives": lambda front: ", ".join(sorted(o.name for o in front.objectives)),
    }
    conflicts = []
    for what, fact in facts.items():
        first, value = fronts[0][0], fact(fronts[0][1])
        other = next(((label, found) for label, front in fronts if (found := fact(front)) != value), None)
        if other is not None:
            conflicts.append(f"Expected sweeps of {what}, got {value} ({first}) and {other[1]} ({other[0]})")
    return tuple(conflicts)


def _data(front: Front) -> str:
    claim = front.claim
    counted = f"{claim.population} training {units_word(claim.unit)}"
    return f"{claim.data} with {counted}, unit {claim.unit}, evaluation {claim.evaluation}"


def _deltas(front: Front) -> list[str]:
    return [f"{delta!r}" for delta in sorted({t.delta for t in front.trials.values() if t.delta is not None})]


def _relations(front: Front) -> list[str]:
    return sorted({trial.relation for trial in front.trials.values() if trial.relation})


def _find_shared(fronts: Sequence[Front]) -> tuple[Objective, ...]:
    """Return the objectives that all sweeps have; certificates only where their radii are in one unit."""
    shared = tuple(o for o in fronts[0].objectives if all(o in front.objectives for front in fronts))
    if len({front.claim.radius_unit for front in fronts}) > 1:
        shared = tuple(objective for objective in shared if not _has_radius(objective.name))
    if EPSILON not in shared or len(shared) < 2:
        names = ", ".join(o.name for o in shared) or "none"
        raise ComparisonError(f"Expected epsilon and another objective in every sweep, got {names} shared by them")
    return shared


def _has_radius(name: str) -> bool:
    return any(read(name) is not None for read in (radius, smoothed_radius, attack_radius))


def _box(objectives: Sequence[Objective], reference: Mapping[str, float], *, log_epsilon: bool) -> Box:
    box = Box.default(objectives, log_epsilon=log_epsilon)
    for name, value in reference.items():
        if name not in box.reference:
            known = ", ".join(box.reference)
            raise ComparisonError(f"Expected a reference for one of {known}, got {name!r} (--reference)")
        worse = value > box.ideal[name] if name == "epsilon" else value < box.ideal[name]
        if not (isfinite(value) and worse):
            ideal = f"a finite reference worse than the ideal {box.ideal[name]:g}"
            raise ComparisonError(f"Expected {ideal}, got {name}={value:g} (--reference)")
    return Box(reference={**box.reference, **reference}, ideal=box.ideal, log_epsilon=log_epsilon)


def _difference(first: Group, second: Group) -> Difference:
    one, other = np.asarray(first.volumes), np.asarray(second.volumes)
    prices = first.price_in_words, second.price_in_words
    found = Difference(first=first.name, second=second.name, mean=first.mean - second.mean, prices=prices)
    if min(len(one), len(other)) < 2:
        return found
    if np.ptp(one) == 0 and np.ptp(other) == 0:  # no spread: nothing to estimate an interval from
        return found
    from scipy import stats

    interval = stats.ttest_ind(one, other, equal_var=False).confidence_interval(CONFIDENCE)
    p = float(stats.mannwhitneyu(one, other, alternative="two-sided").pvalue)
    low, high = float(interval.low), float(interval.high)
    return replace(found, low=low, high=high, p=p)
