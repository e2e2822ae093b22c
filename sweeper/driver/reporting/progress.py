"""What a sweep shows while it runs and when it ends: rendered from one frozen state, so that tests read text.

In a terminal a live display is redrawn in place; elsewhere a plain line is printed now and then. The only
module that writes to the screen during a run.
"""

import dataclasses
import enum
import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeper.privacy.claims import Claim
from sweeper.privacy.held_out import doubt
from sweeper.privacy.pricing import OWN_EPSILON, Price, value_name
from sweeper.program import program
from sweeper.records import Interval, Objective, Point, RehearsalSource
from sweeper.results.display import go_on_with
from sweeper.results.highlights import (
    BELOW,
    NOISY,
    PICKED,
    Highlight,
    best,
    is_below_baseline,
    notable_points,
    scores_in_words,
    spread,
    value_text,
    why_first,
)
from sweeper.results.rehearsal_ranking import RankedRehearsal, Rehearsed, ranked_by
from sweeper.rounding import in_brackets, number_of
from sweeper.tracking.outbox import Undelivered

MAX_FAILURES = 3
LINE_EVERY_SECONDS = 30.0
REFRESH_PER_SECOND = 2
SHOWN_REHEARSALS = 3  # that lead, while configurations are rehearsed
MAX_REHEARSALS = 4  # in the closing summary
CLOSING_POINTS = 2  # of a front in it, its ends, beside those that have a name
WIDTH = 100  # of what a notebook shows
LONG_START_SECONDS = 30.0  # longer than workers take on machines that have room for them
NOTHING_TO_DO = "Every trial has ended: nothing to train"
NOTHING_TRAINS = "no trial has begun yet: workers are starting, or wait for room that others have"


class Phase(enum.Enum):
    """What a sweep does."""

    STARTING = "starting workers"
    REHEARSING = "rehearsing"
    TRAINING = "training"
    SCORING = "scoring the front on test rows"


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial that a worker has: its id, the epochs done and planned (0 if not known yet), and whether it trains."""

    trial: str
    epoch: int = 0
    epochs: int = 0
    begun: bool = True  # that it draws noise; before, it waits for its turn

    @property
    def fraction(self) -> float:
        """How much of it is done."""
        return self.epoch / self.epochs if self.epochs else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalProgress:
    """How the rehearsals of a sweep stand, which come before its first trial."""

    source: RehearsalSource
    done: int  # configurations that have ended
    total: int
    fraction: float  # of all their epochs
    ranked: Rehearsed  # best first, those that train among them
    running: int = 0  # trainings that workers have begun

    @property
    def leader(self) -> RankedRehearsal | None:
        """The best one that has scores."""
        return next((one for one in self.ranked[:1] if one.place is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontScoring:
    """How far the points of a front are scored on test rows, after the last trial."""

    done: int  # points
    total: int
    seconds: float  # that these points took

    @property
    def in_words(self) -> str:
        """What is done, and about how long the rest takes where a tenth has shown it: a first one takes longer."""
        begun = 10 * self.done < self.total or not self.done
        left = "" if begun else f", about {clock(self.seconds / self.done * (self.total - self.done))} left"
        what = f"scoring the front on test rows: {self.done} of {number_of(self.total, 'point')}"
        return f"{what}{left}; Ctrl-C keeps what is scored"


@dataclass(frozen=True, slots=True)
class Earlier:
    """What runs of a sweep before this one did: trials that ended, and these with the shares of those that had not."""

    ended: int = 0
    finished: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProgress:
    """How a sweep stands."""

    name: str
    total: int
    done: int = 0  # trials that completed or were stopped
    failed: int = 0
    running: tuple[RunningTrial, ...] = ()
    objectives: tuple[Objective, ...] = ()
    front: tuple[Point, ...] = ()
    hypervolume: float | None = None
    hypervolume_interval: Interval | None = None  # where scores are noisy
    elapsed_seconds: float = 0.0
    limit_seconds: float | None = None
    # share of the budget of the sweep that is spent or promised to trials that run; None without a budget
    spent: float | None = None
    note: str = ""  # shown instead of all this: a private selection says nothing of its trials
    rehearsals: RehearsalProgress | None = None  # before the first trial; None of a sweep without them
    rehearsed_seconds: float = 0.0  # until the first trial could begin
    scoring: FrontScoring | None = None  # after the last trial
    workers: int = 0  # that train on this machine; 0 where a cluster decides
    earlier: Earlier = Earlier()  # of a sweep that was resumed or extended
    ends: bool = False  # whether this run trains nothing more, though trials may be left

    @property
    def volume_in_words(self) -> str:
        """The hypervolume, with its interval where scores are noisy; empty where it is not known."""
        if self.hypervolume is None:
            return ""
        return f"hypervolume {self.hypervolume:.3f}{in_brackets(self.hypervolume_interval)}"

    @property
    def phase(self) -> Phase:
        """What it does now."""
        if self.scoring is not None:
            return Phase.SCORING
        if not self._has_begun and self.total > 0:
            return Phase.STARTING
        return Phase.REHEARSING if self.rehearses else Phase.TRAINING

    @property
    def rehearses(self) -> bool:
        """Whether configurations are being rehearsed."""
        has_begun = bool(self.running) or self.done + self.failed > 0
        return self.rehearsals is not None and self.rehearsals.done < self.rehearsals.total and not has_begun

    @property
    def fraction(self) -> float:
        """How much of the sweep is done, between 0 and 1; of its rehearsals as long as it rehearses."""
        if self.rehearsals is not None and self.rehearses:
            return self.rehearsals.fraction
        return min(1.0, self.finished / self.total) if self.total else 1.0

    @property
    def finished(self) -> float:
        """How many trials have ended, and the shares of those that run."""
        return self.done + self.failed + sum(running.fraction for running in self.running)

    @property
    def remaining_seconds(self) -> float | None:
        """An estimate of the time left, ``None`` before there is anything to base it on, and when all is done.

        It is that of the rehearsals as long as the sweep rehearses, and then that of its trials, at the pace of this
        run. Until its first trial has ended, the start of workers would count as training; only of trials that all run
        are epochs enough.
        """
        before = 0.0 if self.rehearses or not self.total else self.earlier.finished / self.total
        if self.ends or not (before < self.fraction < 1 and self._can_be_estimated):
            return None
        spent = self.elapsed_seconds - self.rehearsed_seconds
        estimate = spent * (1 - self.fraction) / (self.fraction - before)
        limit = self.limit_seconds
        return estimate if limit is None else max(0.0, min(estimate, limit - self.elapsed_seconds))

    @property
    def _can_be_estimated(self) -> bool:
        if self.rehearsals is not None and self.rehearses:
            return self.rehearsals.done > 0
        before = self.earlier.ended
        return self.done + self.failed > before or len(self.running) == self.total - before

    @property
    def waits(self) -> bool:
        """Whether no trial has begun for longer than workers take to start where there is room."""
        return not self._has_begun and self.elapsed_seconds - self.rehearsed_seconds > LONG_START_SECONDS

    @property
    def _has_begun(self) -> bool:
        rehearsed = self.rehearsals is not None and self.rehearses and self.rehearsals.running + self.fraction > 0
        return bool(self.running) or self.done + self.failed > 0 or rehearsed

    @property
    def best(self) -> Point | None:
        """The point of the front that is best in the first objective beside epsilon."""
        return None if self.utility is None else best(self.front, self.utility)

    @property
    def utility(self) -> Objective | None:
        """The first objective beside epsilon."""
        return next((objective for objective in self.objectives if objective.name != "epsilon"), None)


class Display:
    """Shows a sweep's progress for the time of a ``with`` block, from the first time that there is something to say.

    Of a sweep that is refused before, nothing is left on the screen.
    """

    def __init__(self, console: Console | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console()
        self._now = now
        self._progress: SweepProgress | None = None
        self._updated_at = 0.0
        self._printed_at: float | None = None
        self._printed_phase: Phase | None = None
        self._printed_quarter = 0  # of that phase
        self._printed_best: Point | None = None
        self._live = (
            Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=REFRESH_PER_SECOND,
                transient=True,
            )
            if self._console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, progress: SweepProgress) -> None:
        """Show a new state, or remember it until it is time for a line."""
        self._progress, self._updated_at = progress, self._now()
        self._start()
        if self._live is None and self._is_due(progress):
            self.tell(line(progress, self._printed_best))
            self._printed_best = progress.best

    def _is_due(self, progress: SweepProgress) -> bool:
        """Whether a line is due, which is then taken for printed: of a new phase, a quarter of it, or a while later."""
        phase, quarter = progress.phase, 0 if progress.note else min(3, int(4 * progress.fraction))
        later = self._printed_at is None or self._updated_at - self._printed_at >= LINE_EVERY_SECONDS
        entered = phase is not self._printed_phase and (phase is not Phase.STARTING or self._printed_phase is None)
        further = phase is self._printed_phase and quarter > self._printed_quarter
        if not (later or entered or further):
            return False
        self._printed_at, self._printed_phase, self._printed_quarter = self._updated_at, phase, quarter
        return True

    def tell(self, text: str) -> None:
        """Print a line that stays, above the live display where there is one."""
        self._start()
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _start(self) -> None:
        if self._live and not self._live.is_started:
            self._live.start()

    def _render(self) -> RenderableType:
        if self._progress is None:
            return Text("starting ...")
        since = self._now() - self._updated_at
        ticking = self._progress.elapsed_seconds + since
        return render(dataclasses.replace(self._progress, elapsed_seconds=ticking))


class NotebookDisplay:
    """Shows progress below the cell of a notebook, in one output that is replaced.

    Of a sweep that is refused before there is something to say, nothing is left there.
    """

    def __init__(self) -> None:
        from IPython.display import display

        self._told: list[str] = []
        self._has_begun = False
        self._handle = display(self._content(Text("starting ...")), raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state standing, if there was one."""
        if not self._has_begun:
            self._handle.update({"text/html": "", "text/plain": ""}, raw=True)

    def tell(self, text: str) -> None:
        """Show a line that stays, above the progress."""
        self._told.append(text)
        self._show("")

    def update(self, progress: SweepProgress) -> None:
        """Show a new state."""
        self._show(line(progress) if progress.note else render(progress))

    def _show(self, what: RenderableType) -> None:
        self._has_begun = True
        self._handle.update(self._content(what), raw=True)

    def _content(self, what: RenderableType) -> dict[str, str]:
        """Return what is shown, by the types of content of a notebook's output."""
        # A console that knows that it is in a notebook adds an output of its own each time it prints.
        console = Console(record=True, file=io.StringIO(), width=WIDTH, force_jupyter=False)
        for text in self._told:
            console.print(text, highlight=False, markup=False)
        console.print(what)
        html = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>", clear=False)
        return {"text/html": html, "text/plain": console.export_text()}


def render(progress: SweepProgress) -> RenderableType:
    """Return the live display of a state."""
    if progress.note:
        return Text(line(progress))
    times = Table.grid(padding=(0, 1))  # a bar alone ends no line
    times.add_row(ProgressBar(total=1.0, completed=progress.fraction, width=40), _times(progress))
    parts: list[RenderableType] = [Text(f"{progress.name}: {_counts(progress)}"), times]
    if progress.rehearsals is not None and progress.rehearses and progress.rehearsals.leader:
        parts.append(_leaders(progress.rehearsals, progress.rehearsals.leader, progress.objectives))
    if progress.phase is Phase.STARTING:
        parts.append(Text(_starting(progress)))
    if progress.running:
        parts.append(Text(_listed(progress.running)))
    if progress.scoring is not None:
        parts.append(Text(progress.scoring.in_words))
    if progress.front:
        parts.append(_table(progress))
    return Group(*parts)


def line(progress: SweepProgress, told: Point | None = None) -> str:
    """Return a state as one plain line; its best point in short if it is the one that was told.

    >>> line(SweepProgress(name="digits", total=16, done=3, failed=1, elapsed_seconds=20))
    'digits: 3 of 16 trials done, 1 failed; 0:20 elapsed, about 1:00 left'
    """
    if progress.note:
        return f"{progress.name}: {progress.note}"
    if progress.rehearsals is not None and progress.rehearses:
        return f"{progress.name}: {_rehearsing(progress.rehearsals, progress)}"
    parts = [_starting(progress)] if progress.phase is Phase.STARTING else []
    parts.append(_counts(progress))
    parts += ["best as before"] if told is not None and progress.best == told else _best_so_far(progress)
    parts += [progress.volume_in_words] if progress.front and progress.volume_in_words else []
    parts += [] if progress.scoring is None else [progress.scoring.in_words]
    return f"{progress.name}: {'; '.join([*parts, _times(progress)])}"


def closing_summary(
    progress: SweepProgress,
    folder: Path,
    *,
    untested: int = 0,
    price: Price | None = None,
    named: Sequence[Highlight] = (),
    claim: Claim | None = None,
    look: str | None = None,
    reason: str = "",
    failures: Mapping[str, str] | None = None,
    left: Undelivered | None = None,
    notes: Sequence[str] = (),
    goes_on: bool = True,
    has_report: bool = True,
) -> str:
    """Return what to say when a sweep has ended: how it went, where to look, and last its best score, price and model.

    It fits a screen: of the front it names the ends and the points that have a name; the report has all.
    ``untested`` counts the points of the front without scores of test rows, ``price`` is that of the sweep, ``named``
    has the points that are shown whatever else is, ``claim`` what scores are compared with, ``look`` says how to see
    its runs, ``failures`` why each failed trial did, ``goes_on`` whether a sweep that ended early can be resumed.
    """
    ended = f" (ended early: {reason})" if reason else ""
    idle = NOTHING_TO_DO in notes
    went = f"{_counts(progress, closing=True)} {'before' if idle else f'in {clock(progress.elapsed_seconds)}'}"
    lines = [f"{progress.name}: {progress.note or went}{ended}."]
    lines += [] if progress.rehearsals is None else _rehearsed(progress.rehearsals, progress)
    if progress.front:
        size = len(progress.front)
        volume = f", {progress.volume_in_words}" if progress.volume_in_words else ""
        lines.append(f"The front has {size} point{'s' if size > 1 else ''}{volume}, each at its {OWN_EPSILON}:")
        titles = {one.point.key: f": {one.title}" for one in named}
        shown = spread(progress.front, CLOSING_POINTS, [one.point for one in named])
        lines += [
            f"  {_point(point, progress.objectives)}{titles.get(point.key) or _below(point, progress.utility, claim)}"
            for point in shown
        ]
        lines += [f"  and {size - len(shown)} more: {program()} show {folder}"] if size > len(shown) else []
        lines += [NOISY] if any(point.noisy is not None for point in progress.front) else []
    lines += [f"  {trial} failed: {why}" for trial, why in list((failures or {}).items())[:MAX_FAILURES]]
    hidden = len(failures or {}) - MAX_FAILURES
    lines += [f"  and {hidden} more failed"] if hidden > 0 else []
    lines += notes
    if left and left.rows:
        lines.append(f"Tracking: {left.rows} rows were not taken ({left.trouble}); they wait in {left.path}.")
        lines.append(f"Deliver them later: {program()} replay {folder}")
    lines += [f"Report: {folder / 'front.html'}"] if has_report else []
    lines += [f"Runs: {look}"] if look else []
    if claim is not None:
        lines += [*_best(progress, named, claim), *filter(None, [claim.radii_in_words(progress.objectives)])]
    lines += [] if price is None else [price.in_words]
    if reason and goes_on:
        lines.append(go_on_with(folder, untested))
    if progress.best:
        lines.append(f"A model: {program()} pick {folder}")
    return "\n".join(lines)


def _below(point: Point, objective: Objective | None, claim: Claim | None) -> str:
    """Mark a point without a name whose score lies below what a constant prediction reaches."""
    below = objective is not None and claim is not None and is_below_baseline(point, objective, claim)
    return f": {BELOW}" if below else ""


def _best(progress: SweepProgress, named: Sequence[Highlight], claim: Claim) -> list[str]:
    """Return the best score in a line, beside what a constant prediction reaches; nothing without a front.

    Where that is as good, a second line says so.
    """
    objective, point = progress.utility, progress.best
    if objective is None or point is None:
        return []
    known = next((one for one in named if one.point.key == point.key), Highlight(point, ()))
    scores, doubted = scores_in_words(known.point, objective.name, claim), doubt(known.point, objective.name, claim)
    doubts = [f"{doubted}."] if doubted else []
    if why := why_first(point, progress.front, objective):
        return [f"What pick takes ({point.label}; {why}): {objective.name} {scores}.", *doubts]
    taken = "; pick takes it" if PICKED in known.titles else ""
    return [f"Best {objective.name} ({point.label}{taken}): {scores}.", *doubts]


def clock(seconds: float) -> str:
    """Return a duration as ``m:ss`` or ``h:mm:ss``.

    >>> clock(59.6), clock(3725)
    ('1:00', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _counts(progress: SweepProgress, *, closing: bool = False) -> str:
    rehearsals = progress.rehearsals
    if rehearsals is not None and progress.rehearses and not closing:
        before = number_of(progress.total, "trial")
        done = f"{rehearsals.done} of {number_of(rehearsals.total, 'configuration')} rehearsed"
        return f"{done} on {rehearsals.source.in_words}, before {before}; {rehearsals.source.spent_in_words}"
    waiting = sum(not one.begun for one in progress.running)
    to_come = progress.total - progress.done - progress.failed - len(progress.running)
    numbers = {"running": len(progress.running) - waiting, "waiting": waiting}
    numbers |= {"to come": max(0, to_come)} if waiting else {}
    running = "".join(f", {n} {way}" for way, n in numbers.items() if n)
    failed = f", {progress.failed} failed" if progress.failed else ""
    if rehearsals is None:
        return f"{progress.done} of {number_of(progress.total, 'trial')} done{running}{failed}"
    of_all = "" if closing and progress.done == progress.total else f" of {progress.total}"
    of_planned = "" if rehearsals.done == rehearsals.total else f" of {rehearsals.total}"
    return f"{rehearsals.done}{of_planned} rehearsed, {progress.done}{of_all} trained{running}{failed}"


def _best_so_far(progress: SweepProgress) -> list[str]:
    """Return the best score of the front, the own epsilon that it has and the point's other values."""
    utility, point = progress.utility, progress.best
    if utility is None or point is None:
        return []
    head = "pick takes" if why_first(point, progress.front, utility) else "best"
    values = {one.name: f"{value_name(one.name)} {value_text(point, one.name)}" for one in progress.objectives}
    own = f" at {values.pop('epsilon')}" if "epsilon" in values else ""
    return [f"{', '.join([f'{head} {values.pop(utility.name)}{own}', *values.values()])} ({point.label})"]


def _starting(progress: SweepProgress) -> str:
    return f"starting {number_of(progress.workers, 'worker')}" if progress.workers else Phase.STARTING.value


def _rehearsing(rehearsals: RehearsalProgress, progress: SweepProgress) -> str:
    """Return how rehearsals stand, short: it is printed again and again."""
    if progress.phase is Phase.STARTING:
        of_all = number_of(rehearsals.total, "configuration")
        return f"{_starting(progress)} to rehearse {of_all}, {_times(progress)}"
    parts = [f"rehearsing {rehearsals.done}/{rehearsals.total}", f"{100 * rehearsals.fraction:.0f} % of their epochs"]
    if (utility := progress.utility) is not None:
        known = [(one.id, one.best.values[utility.name]) for one in rehearsals.ranked if one.best is not None]
        best_id, value = max(known, key=lambda pair: utility.direction.sign * pair[1], default=("", 0.0))
        parts += [f"best {utility.name} {value:.3f} on {rehearsals.source.in_words} ({best_id})"] if known else []
    return ", ".join([*parts, _times(progress, "until training")])


def _why(first: RankedRehearsal) -> str:
    """Why a configuration is first that another has outdone; nothing where none has."""
    if first.error is None:
        return ""
    error = "" if math.isinf(first.error) else f", {first.error:.3f}"
    return f": it did best on public tables, and no other beat it by more than the margin of error of rehearsals{error}"


def _leaders(rehearsals: RehearsalProgress, first: RankedRehearsal, objectives: Sequence[Objective]) -> RenderableType:
    table = Table(box=None)
    leaders = [one for one in rehearsals.ranked[:SHOWN_REHEARSALS] if one.place is not None]
    names = list(first.shown(objectives))
    for name in ("configuration", *names, "rank score"):
        table.add_column(name, justify="right")
    for one in leaders:
        values = {} if one.best is None else one.best.values
        numbers = [*(values.get(name) for name in names), one.volume]
        table.add_row(one.id, *("-" if number is None else f"{number:.3f}" for number in numbers))
    led = f"{first.id} leads with {first.scores(objectives)}{_why(first)}"
    return Group(Text(f"{led}; {ranked_by(objectives)}:"), table)


def _rehearsed(rehearsals: RehearsalProgress, progress: SweepProgress) -> list[str]:
    """Which configurations were rehearsed best, and which of them were trained: those two things in any case."""
    ranked = rehearsals.ranked
    shown = [one for i, one in enumerate(ranked) if one.place is not None and (i < 2 or one.trials)][:MAX_REHEARSALS]
    if not shown:
        return []
    source = rehearsals.source
    what = f"configurations rehearsed on {source.in_words}, which {source.cost_in_words} and leave no model"
    lines = [f"The best of {rehearsals.done} {what}, {ranked_by(progress.objectives)}:"]
    for one in shown:
        first = "won" if rehearsals.done == rehearsals.total else "leads"
        place = f"{first}{_why(one)}" if one.place == 1 else "runner-up" if one.place == 2 else f"place {one.place}"
        place += ", for what it adds to the first" if one.trials and one.place != 1 else ""
        trained = f"; trained as {', '.join(one.trials)}{_reached(one.trials, progress)}" if one.trials else ""
        lines.append(f"  {one.id} ({place}): {one.scores(progress.objectives)}{trained}")
    return [*lines, *filter(None, [ranked.doubt])]


def _reached(trials: Sequence[str], progress: SweepProgress) -> str:
    """Return what these trials have on the front, to compare with what was rehearsed."""
    objective = next((one for one in progress.objectives if one.name != "epsilon"), None)
    point = objective and best([point for point in progress.front if point.trial in trials], objective)
    return f", {objective.name} {value_text(point, objective.name)}" if objective and point else ""


def _times(progress: SweepProgress, what: str = "left") -> str:
    remaining = progress.remaining_seconds
    left = "" if remaining is None or round(remaining) <= 0 else f", about {clock(remaining)} {what}"
    return f"{clock(progress.elapsed_seconds)} elapsed{left}" + (f"; {NOTHING_TRAINS}" if progress.waits else "")


def _listed(running: Sequence[RunningTrial]) -> str:
    """Return which trials train, with their epochs, and which wait for their turn."""
    training = ", ".join(_running(one) for one in running if one.begun)
    waiting = ", ".join(one.trial for one in running if not one.begun)
    return "; ".join(f"{way}{trials}" for way, trials in (("training ", training), ("waiting: ", waiting)) if trials)


def _running(running: RunningTrial) -> str:
    return f"{running.trial} (epoch {running.epoch} of {running.epochs})" if running.epochs else running.trial


def _table(progress: SweepProgress) -> RenderableType:
    volume = f", {progress.volume_in_words}" if progress.volume_in_words else ""
    shown = spread(progress.front, always=notable_points(progress.front, progress.objectives))
    part = f", {len(shown)} of them shown" if len(shown) < len(progress.front) else ""
    table = Table(box=None)
    for name in ("trial", "epoch", *(value_name(one.name) for one in progress.objectives)):
        table.add_column(name, justify="right")
    for point in shown:
        table.add_row(point.trial, point.moment, *(value_text(point, one.name) for one in progress.objectives))
    return Group(Text(f"front: {number_of(len(progress.front), 'point')}{volume}{part}"), table)


def _point(point: Point, objectives: Sequence[Objective]) -> str:
    numbers = (f"{value_name(one.name)} {value_text(point, one.name)}" for one in objectives)
    return f"{', '.join(numbers)} ({point.label})"
