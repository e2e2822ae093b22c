"""Sweeps as text: what ``sweeper list`` and ``sweeper show`` print."""

from collections import Counter
from collections.abc import Iterable, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sweeper.errors import RecordError
from sweeper.front import Front
from sweeper.progress import spread
from sweeper.store import SweepFolder
from sweeper.sweep import Sweep

SHOWN_POINTS = 20


def sweeps_table(folders: Iterable[SweepFolder]) -> Table:
    """Return one row per sweep; one that cannot be read says so."""
    table = Table(box=None)
    for column in ("sweep", "status", "trials", "front", "hypervolume"):
        table.add_column(column, justify="left" if column in ("sweep", "status") else "right", overflow="fold")
    for folder in folders:
        try:
            status, front = str(folder.read_sweep()["status"]), Sweep(folder.path).front()
            cells = (status, str(len(front.trials)), str(len(front.on_front)), f"{front.hypervolume:.3f}")
        except (RecordError, KeyError) as error:
            cells = (f"unreadable: {error}", "", "", "")
        table.add_row(str(folder.path), *cells)
    return table


def sweep_view(sweep: Sweep) -> RenderableType:
    """Return a sweep's state, front, trials and cost."""
    front, info = sweep.front(), sweep.info()
    parts: list[RenderableType] = [Text(f"{front.sweep}: {info['status']} {info.get('reason', '')}".rstrip())]
    if front.claim.exploratory:
        parts.append(Text("exploratory: no guarantee", style="bold red"))
    ends = Counter(trial.status for trial in front.trials.values())
    parts.append(Text("trials: " + (", ".join(f"{n} {status}" for status, n in ends.items()) or "none yet")))
    parts += [_points_table(front), Text("")]
    parts += [Text(f"{t}: {trial.status}: {trial.reason}") for t, trial in front.trials.items() if trial.reason]
    parts += [Text(answer.statement) for answer in front.ledger.values()]
    return Group(*parts)


def _points_table(front: Front) -> Table:
    names = [objective.name for objective in front.objectives]
    points = spread(list(front.front_points), SHOWN_POINTS)
    table = Table(
        box=None,
        title=f"front: {len(front.on_front)} points, hypervolume {front.hypervolume:.3f}",
        title_justify="left",
    )
    for column in ("trial", "epoch", *names, *(f"test {name}" for name in names if name != "epsilon")):
        table.add_column(column, justify="right")
    for point in points:
        values = [_number(point.values, name) for name in names]
        tested = [_number(point.test or {}, name) for name in names if name != "epsilon"]
        table.add_row(point.trial, str(point.epoch), *values, *tested)
    return table


def _number(values: Mapping[str, float], name: str) -> str:
    return f"{values[name]:.3f}" if name in values else "-"
