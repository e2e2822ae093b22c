"""Checking a spec without training: the plan of its sweep, its first configurations, and what they would take."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import clipless
from clipless.datasets import Categorical, Dataset, Numeric, Ranges
from clipless.datasets.metadata import units_word
from sweeper.markup import paragraph
from sweeper.planning.estimate import Estimate, clock, estimate, in_words
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.preview import (
    Preview,
    find_lack_of_gpus,
    find_lack_of_privacy,
    find_lack_of_signal,
    find_loose_bounds,
    preview,
    preview_architectures,
)
from sweeper.planning.sources import AnySpec, as_spec, check_sources
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.rounding import number_of, round_up

_WIDTH = 100  # characters of a line
_SHOWN_COLUMNS = 4


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckedSpec:
    """A spec that can be run; shows itself in a notebook or a terminal.

    Attributes:
        plan: of its sweep.
        loaded: the spec as its user wrote it, and its data.
        previews: its first configurations as they would be trained.
        estimate: the time and memory that they would take, ``None`` where these were not measured.
        unchecked: what of the declarations is not compared with private rows, in a sentence or two; empty without such.
    """

    plan: SweepPlan
    loaded: LoadedSpec
    previews: tuple[Preview, ...]
    estimate: Estimate | None
    unchecked: str = ""

    @property
    def data(self) -> Dataset:
        """The data that it names."""
        return self.loaded.data

    @property
    def course(self) -> str:
        """What would be trained, on how many rows and about how long, in a few sentences."""
        words = count_trials(self.plan)
        parts = [_rows_in_words(self.plan, self.data), f"{words[0].upper()}{words[1:]}"]
        parts += self._lacks()
        if self.estimate is not None:
            parts.append(f"It takes about {clock(self.estimate.seconds)} on this machine")
        return "".join(f"{part}. " for part in parts).strip()

    def _lacks(self) -> list[str]:
        """Return of what there is too little, in sentences: privacy, or signal in the noise."""
        found = find_lack_of_privacy(self.plan, self.previews), find_lack_of_signal(self.plan, self.previews)
        return [*filter(None, found)]

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        return "\n".join(textwrap.fill(line, _WIDTH, subsequent_indent="  ") for line in self._lines())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        head, *lines = self._lines()
        return paragraph(head, strong=True) + "".join(map(paragraph, lines))

    def _lines(self) -> Iterator[str]:
        plan, rows = self.plan, _rows_in_words(self.plan, self.data)
        open_ = number_of(plan.shared.space.open, "open hyperparameter")
        yield f"{plan.name}: valid. {rows}; {count_trials(plan)}, {open_}."
        if lack := find_lack_of_gpus(plan):
            yield lack
        yield plan.announcement
        if plan.advice:
            yield plan.advice
        yield from (f"{lack}." for lack in self._lacks())
        if self.unchecked:
            yield self.unchecked
        for number, one in enumerate(self.previews, start=1):
            made = one.plan
            price = "no privacy" if not one.claims else f"epsilon {round_up(one.claims[-1].epsilon)} by itself"
            yield (
                f"configuration {number}: {made.epochs} epochs of {made.steps_per_epoch} steps, batches of "
                f"{made.batch_size:g}, noise multiplier {made.noise_multiplier:.4g}, {price}"
            )
        if self.plan.chosen:
            fields = ", ".join(one.field for one in self.plan.chosen)
            yield f"chosen for you (plan.chosen has values and reasons): {fields}"
        if self.estimate is not None:
            yield in_words(self.estimate)
        if advice := find_loose_bounds(plan):
            yield advice


def count_trials(plan: SweepPlan) -> str:
    """Return how many configurations would be rehearsed and how many trained, in words."""
    selection, trials = plan.spending.selection, number_of(plan.trials, "trial")
    if plan.rehearsals:
        rehearsed = f"{number_of(plan.rehearsals, 'configuration')} to rehearse on {plan.rehearsed_on.in_words}"
        return f"{rehearsed} (search.trials), then {trials} (privacy.finals)"
    if selection is None:
        return trials
    final = ", then one final" if plan.spending.budget else ""
    return f"a secret number of trials, {selection.repetitions.mean:g} on average{final}"


def _rows_in_words(plan: SweepPlan, data: Dataset) -> str:
    declared = data.metadata
    return f"{declared.name}, N = {plan.population} training {units_word(declared.unit)}"


def check_spec(
    spec: AnySpec, data_dir: Path | None = None, *, configurations: int = 1, measure: bool = True
) -> CheckedSpec:
    """Plan the sweep of a spec and its first configurations; nothing is trained and nothing is spent.

    Args:
        spec: what its user wrote.
        data_dir: local copies of data sets.
        configurations: how many are planned.
        measure: whether time and memory are measured, on rows of zeros.

    Raises:
        SpecError: the spec does not fit the data, its budget cannot be cut as it asks, or it names no earlier sweep.
        clipless.errors.CliplessError: its data cannot be used, or nothing can be planned.
    """
    asked = as_spec(spec)
    check_sources(asked, data_dir)
    loaded = LoadedSpec.of(asked, data_dir)
    plan, data = loaded.plan(), loaded.data
    previews = preview(plan, data, configurations)
    return CheckedSpec(
        plan=plan,
        loaded=loaded,
        previews=previews,
        estimate=estimate(plan, data, preview_architectures(plan, data, previews)) if measure else None,
        unchecked=_find_unchecked(loaded, plan),
    )


def _find_unchecked(loaded: LoadedSpec, plan: SweepPlan) -> str:
    """Return which declared spellings no row may contradict: a refusal would tell what a private row holds."""
    data, ranges = loaded.data, loaded.options.get("ranges")
    columns = plan.input.raw.columns if plan.input is not None and isinstance(plan.input.raw, Ranges) else {}
    if ranges is None or data.metadata.training_is_open or not columns:
        return ""
    unknown = clipless.datasets.load_ranges(ranges).unknown
    spelt = [f"classes ({', '.join(data.metadata.classes)})"] if unknown is not None else []
    named = [name for name, one in columns.items() if isinstance(one, Categorical)]
    spelt += [f"categories (of {_list(named)})"] if named else []
    stood_in = [name for name, one in columns.items() if isinstance(one, Numeric) and one.missing is not None]
    if not spelt and not stood_in:
        return ""
    parts = [f"the spelling of {' and '.join(spelt)}"] if spelt else []
    parts += [f"what is no number (in {_list(stood_in)})"] if stood_in else []
    becomes = [f"every other label becomes {unknown!r}"] if unknown is not None else []
    becomes += ["every other category becomes unknown"] if named else []
    becomes += ["every text that is no number becomes a missing one"] if stood_in else []
    return (
        f"Not checked against the rows, which would be a release: {' and '.join(parts)}. "
        f"Compare them with the file's documentation; {', '.join(becomes)}."
    )


def _list(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - _SHOWN_COLUMNS} more" if len(columns) > _SHOWN_COLUMNS else ""
    return ", ".join(columns[:_SHOWN_COLUMNS]) + more
