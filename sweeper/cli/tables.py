"""Sweeps as text: what ``sweeper list``, ``sweeper show`` and ``sweeper compare`` print."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from sweeper.errors import RecordError
from sweeper.privacy.claims import COPIED
from sweeper.privacy.pricing import price, value_name
from sweeper.records import SweepStatus, TrialStatus
from sweeper.results.comparison import Comparison
from sweeper.results.display import go_on_with
from sweeper.results.front import Front, later_points
from sweeper.results.front_record import FrontTrial
from sweeper.results.highlights import NOISY, best, explain, highlights, shown_text, spread, test_text, value_text
from sweeper.results.sweep import Sweep
from sweeper.rounding import number_of, round_down, round_up
from sweeper.store.evidence import Evidence
from sweeper.store.notes import read_notes
from sweeper.store.rehearsal_records import read_rehearsals
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.trial_standings import LOST_REASON, standings

SHOWN_POINTS = 20
SHOWN_REASONS = 20
_MOST_NAMED = 4  # trials in one line
_WHOLE_NAME = 44  # letters of a path that is not folded
PIPE_WIDTH = 1000
_CAN_RESUME = (SweepStatus.STOPPED, SweepStatus.FAILED, SweepStatus.INTERRUPTED, SweepStatus.LOST)


JUDGED = (
    "Each confidence is that of its row alone. The verdicts judge all rows together, by Holm's correction: where every "
    "claim is true, any of them is contradicted with a chance of at most 5 %."
)
OWN_TEXT = (
    "Own epsilon: of one training, if its configuration and epoch were fixed in advance. Any model that was chosen by "
    "these numbers costs the price:"
)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A number with its interval, or a name, which a column without room for it breaks between its parts only."""

    text: str

    def _lines(self, width: int) -> list[str]:
        """Return it in as few lines as have room."""
        text = self.text
        for gap, end in ((" [", "\n["), ("] ", "]\n"), ("_", "_\n")):
            if max(map(len, text.splitlines()), default=0) > width:
                text = text.replace(gap, end)
        return text.splitlines()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(self._lines(options.max_width)), justify="right", overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(max(map(len, self._lines(0)), default=0), len(self.text))


def sweeps_table(folders: Iterable[SweepFolder]) -> Table:
    """Return one row per sweep: how it stands, its best value, its price; one that cannot be read says so."""
    table, folders = Table(box=None), tuple(folders)
    longest = max((len(str(folder.path)) for folder in folders), default=0)
    table.add_column("sweep", overflow="fold", no_wrap=longest <= _WHOLE_NAME)  # it is copied into other commands
    table.add_column("status")
    for column in ("trials", "best", "price"):
        table.add_column(column, justify="right")
    for folder in folders:
        try:
            status, halted = Sweep(folder.path).status, _rehearsals_of_halted(folder)
            cut = f"{halted[0]} of {halted[1]} rehearsed" if halted else ""
            front = Sweep(folder.path).front() if folder.front.is_file() else None
            mark = "exploratory" if front is not None and front.claim.exploratory else ""
            stood = ", ".join(filter(None, [status.value, mark, cut]))
            table.add_row(str(folder.path), stood, *([] if front is None else _cells(front)))
        except RecordError as error:
            table.add_row(str(folder.path), f"unreadable: {error}")
    return table


def _rehearsals_of_halted(folder: SweepFolder) -> tuple[int, int] | None:
    """Return how many configurations were rehearsed, of how many, by a sweep that ended before all were; else None."""
    planned = folder.read_manifest().course.rehearsals
    if not planned or Sweep(folder.path).status is SweepStatus.RUNNING or folder.trials():
        return None
    done = len(read_rehearsals(folder.rehearsals))
    return (done, planned) if done < planned else None


def _halted(sweep: Sweep) -> list[Text]:
    """Say of a sweep that ended while it rehearsed how far it came, what is spent and what can be done.

    Of one that ended later it says how many points of its front are not scored on test rows, and what scores them.
    """
    found, status = _rehearsals_of_halted(sweep.folder), sweep.status
    lost = status is SweepStatus.LOST
    if found is None:
        front = sweep.front()
        untested = sum(point.test is None for point in front.front_points)
        can_resume = status in _CAN_RESUME and not sweep.manifest().selects_privately
        later = later_points(sweep.folder, front) if lost else ()
        goes_on = go_on_with(sweep.directory, untested, lost=lost, later=later)
        return [Text(goes_on)] if lost or (untested and can_resume) else []
    from sweeper.privacy.ledger import Ledger

    event, prices = Ledger(sweep.folder.ledger).sketch, sweep.front().ledger.values()
    delta = next((one.delta for one in prices), None)
    paid = (
        ""
        if event is None or delta is None
        else f"epsilon {round_up(price([event], delta).epsilon)} at delta {delta!r}"
    )
    said = sweep.manifest().course.halted_in_words(status.value, found[0], paid)
    return [Text(f"{said}."), Text(go_on_with(sweep.directory, lost=lost))]


def _cells(front: Front) -> list[RenderableType]:
    """Return the numbers of a sweep for a list."""
    judged = next((one for one in front.objectives if one.name != "epsilon"), None)
    found = None if judged is None else best(front.front_points, judged)
    return [
        str(front.trials_begun),
        _Cell(
            "-" if judged is None or found is None else f"{judged.name} {shown_text(found, judged.name, front.claim)}"
        ),
        "-" if front.price is None else f"{round_up(front.price.epsilon)}{front.price.doubt}",
    ]


def sweep_view(sweep: Sweep) -> RenderableType:
    """Return a sweep's state, front, trials and cost."""
    front, manifest = sweep.front(), sweep.manifest()
    status = sweep.status
    reason = LOST_REASON if status is SweepStatus.LOST else manifest.reason
    head = ": ".join(filter(None, [front.sweep, status.value, reason]))
    parts: list[RenderableType] = [Text(head), *_halted(sweep)]
    if front.claim.exploratory:
        parts.append(Text("exploratory: no guarantee", style="bold red"))
    parts += [Text(COPIED, style="bold red")] if COPIED in front.claim.conditions else []
    trials = sweep.folder.trials()
    statuses = {id_: one.status for id_, one in front.trials.items()} | {
        i: one.status.value for i, one in trials.items()
    }
    ways = standings(sweep.folder, manifest, statuses, runs=status is SweepStatus.RUNNING)
    counts = ", ".join(f"{n} {way}" for way, n in Counter(ways.values()).items())
    parts.append(Text(f"trials: {counts or 'none yet'}"))
    parts += [*(_points_table(front) if front.points else [Text("front: no point yet")]), *_prices(front)]
    parts += [*_list_named(front), Text("")]
    parts += _reasons(front.trials, ways)
    placed = Counter((trial.placed["node"], trial.placed["device"]) for trial in trials.values() if trial.placed)
    where = [f"{number_of(n, 'trial')} on {node} ({device})" for (node, device), n in placed.items()]
    parts += [Text(f"trained: {'; '.join(where)}")] if where else []
    parts += [Text(f"{trial}: {notes}") for trial, notes in read_notes(sweep.directory).items()]
    return Group(*parts)


def comparison_view(comparison: Comparison) -> RenderableType:
    """Return the hypervolume of each sweep, and what can be said of their differences."""
    table = Table(box=None)
    heads, rows = comparison.table()
    for column in heads:
        table.add_column(column, justify="left" if column in ("name", "sweep") else "right", overflow="fold")
    for name, sweep, trials, best_score, volume, cost in rows:
        table.add_row(name, sweep, trials, _Cell(best_score), _Cell(volume), cost)
    parts: list[RenderableType] = [Text(remark, style="bold red") for remark in comparison.remarks]
    parts += [table, *(Text(str(difference)) for difference in comparison.differences)]
    return Group(*parts, *map(Text, filter(None, [comparison.uncorrected, comparison.price_in_words])))


def audit_view(rows: Sequence[Evidence]) -> RenderableType:
    """Return one row per finding, and how the verdicts were reached: what is claimed, attained, and what that says."""
    table = Table(box=None)
    heads = ("what", "audit", "claim", "attained", "ratio", "delta", "confidence", "verdict")
    for column in heads:
        table.add_column(column, justify="left" if column in ("what", "audit", "verdict") else "right", overflow="fold")
    findings = [row.finding for row in rows]
    for found in findings:
        verdict = Text("contradicted", style="bold red") if found.contradicted else Text("holds")
        sure = "computed" if found.confidence == 1.0 else f"{100 * found.confidence:g} %"
        ratio = "-" if isnan(found.ratio) else f"{found.ratio:.3f}"
        numbers = (round_up(found.epsilon), round_down(found.attained), ratio, repr(found.delta))
        table.add_row(found.subject, found.kind.value, *numbers, sure, verdict)
    above = sum(found.attained > found.epsilon and not found.contradicted for found in findings)
    count = f"{above} row{'s' * (above > 1)}"
    chance = [f"{count} attained more than the claim by itself, which among {len(rows)} rows is no refutation."]
    return Group(table, Text(" ".join([JUDGED, *(chance if above else [])])))


def print_view(what: RenderableType, console: Console | None = None) -> None:
    """Print tables and texts: tables as wide as the terminal, into a file or a pipe without cutting them to a width."""
    is_cut = console is not None or sys.stdout.isatty()
    console = console or Console(width=None if is_cut else PIPE_WIDTH)
    for one in what.renderables if isinstance(what, Group) else [what]:
        console.print(one, soft_wrap=not (is_cut and isinstance(one, Table)))  # what is copied from a text stays whole


def _list_named(front: Front) -> list[Text]:
    """Return the best of each objective, the knee, and the point that ``pick`` takes."""
    lines = []
    for one in highlights(front):
        values = ", ".join(f"{value_name(o.name)} {value_text(one.point, o.name)}" for o in front.objectives)
        lines.append(Text(f"{one.title}: {one.point.label}: {values}"))
    judged = next((one.name for one in front.objectives if one.name != "epsilon"), "")
    against = front.claim.baselines.in_words(judged)
    return [*lines, Text(f"to beat in {judged}: {against}")] if against else lines


def _reasons(trials: Mapping[str, FrontTrial], ways: Mapping[str, str]) -> list[Text]:
    """Return why trials ended as they did, failures first; those that share it in one line."""
    told: dict[tuple[str, str], list[str]] = {}
    for id_, trial in trials.items():
        if trial.reason:
            told.setdefault((ways.get(id_, trial.status), trial.reason), []).append(id_)
    shown = sorted(told.items(), key=lambda one: one[0][0] != TrialStatus.FAILED.value)
    lines = [Text(f"{_ids(ids)}: {way}: {reason}") for (way, reason), ids in shown[:SHOWN_REASONS]]
    more = sum(len(ids) for _, ids in shown[SHOWN_REASONS:])
    return [*lines, Text(f"and {more} more; all of them are in the report")] if more else lines


def _ids(ids: Sequence[str]) -> str:
    return ", ".join(ids) if len(ids) <= _MOST_NAMED else f"{len(ids)} trials from {ids[0]} to {ids[-1]}"


def _points_table(front: Front) -> list[RenderableType]:
    names = [objective.name for objective in front.objectives]
    points = spread(front.front_points, SHOWN_POINTS, [one.point for one in highlights(front)])
    part = f"; {len(points)} of them shown, all are in front.csv" if len(points) < len(front.on_front) else ""
    title = (
        f"front: {len(front.on_front)} of {len(front.points)} points, hypervolume {front.hypervolume_in_words}{part}"
    )
    table = Table(box=None)
    tested = [name for name in names if name != "epsilon"]
    heads = ("trial", "epoch", *map(value_name, names), *(f"test {name}" for name in tested))
    for column in heads:
        table.add_column(_Cell(column), justify="right")
    for point in points:
        values = [*(value_text(point, name) for name in names), *(test_text(point, name) for name in tested)]
        table.add_row(point.trial, point.moment, *map(_Cell, values))
    return [Text(title), table]


def _prices(front: Front) -> list[Text]:
    """Return the price, and how to read the points' own epsilons."""
    noisy = [Text(NOISY)] if any(point.noisy is not None for point in front.front_points) else []
    own = [Text(OWN_TEXT)] if front.price is not None and front.on_front else []
    words = map(Text, explain(front.front_points, highlights(front)) if front.on_front else [])
    return [*noisy, *words, *own, *map(Text, dict.fromkeys(answer.in_words for answer in front.ledger.values()))]
