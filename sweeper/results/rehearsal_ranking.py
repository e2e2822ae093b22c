"""The order of configurations that were rehearsed: by what they have shown, as finalists are chosen.

Ranks say which configurations were worth training. They are no results of the sweep: a rehearsed configuration has no
epsilon, no model and no place on the front. One that did best on public tables comes first unless another is better by
more than the error of rehearsals.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sweeper.adapters import read
from sweeper.markup import aligned, paragraph, table
from sweeper.privacy.claims import Claim
from sweeper.records import ConfigValues, Objective
from sweeper.rounding import number_of
from sweeper.search.finalists import Merit, measure_error, measure_merit
from sweeper.specification.constraints import OutcomeConstraint, parse_constraint
from sweeper.specification.fields.nested import flatten
from sweeper.specification.objectives import AUROC, recall_text
from sweeper.specification.search import Prior
from sweeper.store.rehearsal_records import FIRST, RehearsedConfiguration, RehearsedEpoch, read_rehearsals
from sweeper.store.sweep_folder import SweepFolder

if TYPE_CHECKING:
    import pandas as pd

MAX_SHOWN = 10
NOT_REHEARSED = "No configuration was rehearsed."
_CHANCE = 0.5
_LEAST_DIFFERENCES = 3  # between two trainings, for an error
Judge = Callable[[RehearsedConfiguration], Merit | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRehearsal:
    """A rehearsed configuration with its place.

    Attributes:
        place: from 1; ``None`` of a configuration without scores.
        configuration: what was rehearsed, and what it has shown.
        best: its best epoch in the first objective beside epsilon.
        volume: share of the box that its epochs dominate together, over every objective but epsilon.
        trials: those of the sweep that train this configuration.
        error: of rehearsals, where it is first because no other is better by more than that; infinite where too few
            were rehearsed to say it.
    """

    place: int | None
    configuration: RehearsedConfiguration
    best: RehearsedEpoch | None = None
    volume: float | None = None
    trials: tuple[str, ...] = ()
    error: float | None = None

    @property
    def id(self) -> str:
        """The id of the configuration."""
        return self.configuration.id

    def shown(self, objectives: Sequence[Objective]) -> dict[str, float]:
        """Return the values of its best epoch: those it is ranked by first, recalls of classes only if they are such.

        Its volume is left out: it is without epsilon, and not to be compared with the hypervolume of a front.
        """
        values = {} if self.best is None else self.best.values
        first = [one.name for one in objectives if one.name in values]
        others = [name for name in values if name not in first and recall_text(name) is None]
        return {name: values[name] for name in (*first, *others)}

    def scores(self, objectives: Sequence[Objective]) -> str:
        """Return what is `shown` in words: ``accuracy 0.871, certified@0.25 0.640``, or the reason why nothing is."""
        if self.best is None:
            return self.configuration.reason or "no scores"
        return ", ".join(f"{name} {value:.3f}" for name, value in self.shown(objectives).items())

    def row(self) -> dict[str, Any]:
        """Return one flat row: place, scores at its best epoch, hypervolume, and the configuration."""
        best = self.best
        return {
            "configuration": self.id,
            "rehearsed_on": self.configuration.source.value,
            "place": self.place,
            "epoch": None if best is None else best.epoch,
            "made_from": "" if best is None else best.made_from,
            **({} if best is None else best.values),
            "hypervolume": self.volume,
            "trials": ", ".join(self.trials),
            "reason": self.configuration.reason,
            **{f"config.{name}": value for name, value in flatten(self.configuration.config).items()},
        }


class Rehearsed(tuple[RankedRehearsal, ...]):
    """Configurations that were rehearsed, best first."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return what a terminal shows: how many there are, and the best of them as a table."""
        if not self:
            return NOT_REHEARSED
        head, cells = self._shown()
        return "\n".join([head, *(aligned(cells) if len(cells) > 1 else [])])

    def _repr_html_(self) -> str:
        """Return what a notebook shows, likewise."""
        if not self:
            return paragraph(NOT_REHEARSED)
        head, (heads, *rows) = self._shown()
        return paragraph(head, strong=True) + (table(heads, rows) if rows else "")

    def _shown(self) -> tuple[str, list[list[str]]]:
        """Return a line, and the cells of the best configurations below their heads."""
        ranked = self[:MAX_SHOWN]
        names = list(dict.fromkeys(name for one in ranked if one.best is not None for name in one.best.values))
        part = f"; the best {len(ranked)}, to_dataframe() has all of them" if len(self) > len(ranked) else ""
        cells = [["place", "configuration", *names, "hypervolume", "trained as"]]
        for one in ranked:
            values = {} if one.best is None else one.best.values
            numbers = [*(values.get(name) for name in names), one.volume]
            texts = ["-" if number is None else f"{number:.3f}" for number in numbers]
            last = ", ".join(one.trials) or ("-" if one.best is not None else one.scores(()))
            cells.append(["-" if one.place is None else str(one.place), one.id, *texts, last])
        return f"{number_of(len(self), 'configuration')} rehearsed, no points of the sweep{part}", cells

    @property
    def doubt(self) -> str:
        """Say that no configuration ranks rows better than chance; empty where one does, or too few tell an error.

        The standard error of an AUROC, the mean of two trainings, comes from their differences.
        """
        reached = [one.best.values[AUROC] for one in self if one.best is not None and AUROC in one.best.values]
        differences = [found for one in self if (found := _difference(one, AUROC)) is not None]
        if len(differences) < _LEAST_DIFFERENCES or not all(map(isfinite, (*reached, *differences))):
            return ""
        largest, error = max(reached), sqrt(fmean(difference**2 for difference in differences)) / 2.0
        if largest > _CHANCE + 2.0 * error:
            return ""
        return (
            f"No rehearsal ranks rows better than chance, 0.5, by more than twice its error (largest AUROC "
            f"{largest:.3f}, error {error:.3f}): the model may give every row the same answer."
        )

    @property
    def in_words(self) -> str:
        """Say how many were rehearsed on what, at what cost, and which of them were trained; empty where none was."""
        if not self:
            return ""
        source = self[0].configuration.source
        head = f"{number_of(len(self), 'configuration')} rehearsed on {source.in_words}"
        trained = [f"{one.id} as {', '.join(one.trials)}" for one in self if one.trials]
        then = f" Trained: {'; '.join(trained)}." if trained else ""
        return f"{head}, which {source.cost_in_words} and leave no model.{then}"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return one flat row per configuration; see `RankedRehearsal.row`."""
        return (one.row() for one in self)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return the rows as a table."""
        import pandas as pd

        return pd.DataFrame.from_records(list(self.rows()))


def ranked_by(objectives: Sequence[Objective]) -> str:
    """Return in words what ranks rehearsed configurations.

    >>> ranked_by([Objective.named(name) for name in ("epsilon", "auroc", "accuracy")])
    'ranked by auroc and accuracy together'
    """
    names = [one.name for one in objectives if one.name != "epsilon"]
    return f"ranked by {' and '.join(names)}{' together' if len(names) > 1 else ''}"


def rank_rehearsals(
    configurations: Iterable[RehearsedConfiguration],
    objectives: Sequence[Objective],
    trained: Mapping[str, ConfigValues],
    judge: Judge | None = None,
    preferred: str | None = None,
) -> Rehearsed:
    """Return configurations in the order of their merit; those without scores come last.

    Args:
        configurations: that were rehearsed.
        objectives: of the sweep.
        trained: configuration by trial, of the trials that have begun.
        judge: returns the merit of a configuration; `judge_rehearsal` without constraints by default.
        preferred: the id of the configuration that others have to be better than by more than their error.
    """
    merit = judge or (lambda one: judge_rehearsal(one, objectives))
    utility = next((one for one in objectives if one.name != "epsilon"), None)
    judged = [(merit(one), one) for one in configurations]
    good = [(found, one) for found, one in judged if found is not None]
    good.sort(key=lambda pair: pair[0], reverse=True)  # of equals the first one, as among finalists
    error = measure_error([found for found, _ in good])
    leads = next((pair for pair in good[1:] if pair[1].id == preferred and pair[0].plus(error) > good[0][0]), None)
    if leads is not None:
        good.remove(leads)
        good.insert(0, leads)
    ranked = [
        RankedRehearsal(
            place=place,
            configuration=one,
            best=_best(one.epochs, utility),
            volume=found.volume,
            trials=_trials_of(one, trained),
            error=error if leads is not None and place == 1 else None,
        )
        for place, (found, one) in enumerate(good, start=1)
    ]
    return Rehearsed([*ranked, *(RankedRehearsal(place=None, configuration=one) for found, one in judged if not found)])


def ranked_rehearsals(folder: SweepFolder) -> Rehearsed:
    """Return the configurations of a sweep that were rehearsed, best first.

    Raises:
        RecordError: a file of the sweep cannot be read, or nobody may see it yet.
    """
    manifest, found = folder.read_manifest(), read_rehearsals(folder.rehearsals)
    trained = {id_: trial.config for id_, trial in folder.trials().items()}
    names = manifest.spec.get("search", {}).get("objectives", ())
    return rank_recorded(found, [Objective.named(name) for name in names], trained, manifest.spec, manifest.claim)


def rank_recorded(
    configurations: Iterable[RehearsedConfiguration],
    objectives: Sequence[Objective],
    trained: Mapping[str, ConfigValues],
    spec: Mapping[str, Any],
    claim: Mapping[str, object] | None = None,
) -> Rehearsed:
    """Return configurations best first, as `rank_rehearsals`, by spec and claim as they were recorded."""
    search = spec.get("search", {})
    names = [objective.name for objective in objectives]
    recorded = tuple(dict.fromkeys(("epsilon", "accuracy", *names, *search.get("metrics", ()))))
    wanted = [parse_constraint(text, recorded) for text in search.get("constraints", ())]
    preferred = None if search.get("prior") in (None, Prior.NONE.value) else FIRST
    known = None if claim is None else read(Claim, claim, "in sweep.json", "restore the file", under="claim")
    constant = None if known is None else known.baselines.constants(names)

    def judge(one: RehearsedConfiguration) -> Merit | None:
        return judge_rehearsal(one, objectives, wanted, constant)

    return rank_rehearsals(configurations, objectives, trained, judge, preferred=preferred)


def judge_rehearsal(
    one: RehearsedConfiguration,
    objectives: Sequence[Objective],
    constraints: Sequence[OutcomeConstraint] = (),
    constant: Mapping[str, float] | None = None,
) -> Merit | None:
    """Return what recommends a configuration by what it has shown; see `measure_merit`."""
    return measure_merit([epoch.values for epoch in one.epochs], objectives, constraints, one.parts, constant)


def _difference(one: RankedRehearsal, name: str) -> float | None:
    """Return by how much the two trainings of a configuration differ at its best epoch, None where that is not known.

    Where one of them has epochs that the other lacks, its parts do not say which they are.
    """
    epochs, parts = one.configuration.epochs, one.configuration.parts
    if one.best is None or name not in one.best.values or [len(part) for part in parts] != [len(epochs)] * 2:
        return None
    first, second = (part[epochs.index(one.best)][name] for part in parts)
    return first - second


def _best(epochs: Sequence[RehearsedEpoch], utility: Objective | None) -> RehearsedEpoch | None:
    if utility is None:
        return None
    known = [epoch for epoch in epochs if utility.name in epoch.values]
    return max(known, key=lambda epoch: utility.direction.sign * epoch.values[utility.name], default=None)


def _trials_of(configuration: RehearsedConfiguration, trained: Mapping[str, ConfigValues]) -> tuple[str, ...]:
    return tuple(trial for trial, config in trained.items() if config == configuration.config)
