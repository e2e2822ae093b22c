"""Workers: which worker trained which trial, in the order in which trials began and ended.

The axis counts beginnings and ends; it is no time, which no record has, and none may be added: how long a training
takes depends on how many rows joined its batches, which nobody has paid for. The order is that of ``trials.jsonl``. A
private selection shows none of it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic, omitted
from dashboards.figures._common import header, new_figure
from dashboards.figures._theme import LIGHT, Theme
from sweeper.records import Trial, TrialStatus
from sweeper.rounding import number_of
from sweeper.store.trial_standings import LOST, NEVER_BEGUN, WAITING

DRAWN_STINTS = 400  # the last ones
_NAMED_STAYS = 40  # whose trials are named in their bars
_LANE, _SLIM_LANE, _FEW_LANES = 34, 24, 8  # pixels of a lane, and of one of more than a few
_LEAST_STAYS = (
    4  # of fewer, with one worker, or one trial for each, lanes say nothing that the number of trials does not
)
_COLORS = {
    TrialStatus.COMPLETED.value: "blue",
    TrialStatus.STOPPED.value: "orange",
    TrialStatus.FAILED.value: "red",
    TrialStatus.INTERRUPTED.value: "purple",
    NEVER_BEGUN: "muted",
    LOST: "purple",
    TrialStatus.RUNNING.value: "green",
    WAITING: "muted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """One stay of a trial with a worker.

    ``first`` and ``last`` count the beginnings and ends of all trials so far, from 0; ``last`` is None while it lasts.
    """

    trial: str
    first: int
    last: int | None = None
    node: str = ""  # that trains it, its device and its process; empty before the plan
    device: str = ""
    process: str = ""  # of earlier versions not known
    status: str = TrialStatus.RUNNING.value  # how it stands or ended, in a word


@dataclass(frozen=True, slots=True)
class Stay:
    """A stay of a trial with a worker, and which worker that was.

    Attributes:
        stint: the stay.
        place: node and device.
        worker: its number there, from 1.
        member: of its stack, from 1; 0 of a worker that trains one trial at a time.
        end: of the stay, or of the records while it lasts.
    """

    stint: Stint
    place: str
    worker: int
    member: int
    end: int

    @property
    def lane(self) -> str:
        """The name of its lane among those of one node and device."""
        return f"worker {self.worker}" + (f", member {self.member}" if self.member else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersInfo(FigureInfo):
    """Numbers of the workers figure."""

    stays: tuple[Stay, ...]  # in the order in which they began
    total: int  # of all stays, drawn or not


def info(data: SweepData) -> WorkersInfo:
    """Find the stays of trials with workers; none of few stays, one worker, or a private selection.

    Trials of a private selection are not to be counted.

    Guarantees:
        Nothing of a sweep that selects privately, or of which that is not known.
    """
    is_told = data.manifest is not None and not data.manifest.selects_privately
    found = _find_stints(data.trial_rows) if is_told else ()
    stints = [one if one.last is not None else replace(one, status=_how(one, data)) for one in found if one.node]
    end = max((one.last or one.first for one in stints), default=0) + 1
    stays = tuple(_with_workers(stints, end))
    each = Counter((stay.place, stay.worker) for stay in stays)
    if len(stays) < _LEAST_STAYS or len(each) < 2 or max(each.values()) < 2:
        stays = ()
    return WorkersInfo(
        **header(data, "workers and their trials (lengths are no durations)"),
        stays=stays[-DRAWN_STINTS:],
        total=len(stays),
    )


def _how(stint: Stint, data: SweepData) -> str:
    """How the trial of a stay that has no end stands: it may wait for its turn, or have lost its driver."""
    return data.how_stands(stint.trial, runs=not data.has_ended) if stint.trial in data.trials else stint.status


def _find_stints(rows: Iterable[Trial]) -> tuple[Stint, ...]:
    """Return the stays of trials with workers, in the order in which they began.

    ``rows`` are those of ``trials.jsonl``, in their order: several of each trial.
    """
    open_: dict[str, int] = {}
    found: list[Stint] = []
    moment = 0
    for row in rows:
        is_running = row.status is TrialStatus.RUNNING
        if row.id not in open_:
            if not is_running:
                continue
            open_[row.id] = len(found)
            found.append(Stint(trial=row.id, first=moment))
            moment += 1
        at = open_[row.id]
        node, device, process = (row.placed.get(key, "") for key in ("node", "device", "process"))
        found[at] = replace(found[at], node=node, device=device, process=process, status=row.status.value)
        if not is_running:
            found[at] = replace(found[at], last=moment)
            moment += 1
            del open_[row.id]
    return tuple(found)


def _with_workers(stints: Iterable[Stint], end: int) -> Iterable[Stay]:
    """Tell the workers of one device apart by their processes, and the members of a stack by which lane was free.

    Where processes are not known, each lane is a worker: it has the trials that began when it was free.
    """
    lanes: dict[str, dict[str, list[int]]] = {}  # until when they are taken, by place and process
    found = []
    for one in stints:
        place, until = f"{one.node}, {one.device}", end if one.last is None else one.last
        of_process = lanes.setdefault(place, {}).setdefault(one.process, [])
        free = next((i for i, taken in enumerate(of_process) if taken <= one.first), len(of_process))
        of_process[free : free + 1] = [until]
        found.append((one, place, free, until))
    for one, place, lane, until in found:
        number = [*lanes[place]].index(one.process)
        if one.process:
            yield Stay(one, place, number + 1, lane + 1 if len(lanes[place][one.process]) > 1 else 0, until)
        else:
            yield Stay(one, place, number + lane + 1, 0, until)


def rows(info: WorkersInfo) -> Table:
    """The numbers of the figure: one row per stay."""
    return [
        {
            "worker": f"{stay.place}, {stay.lane}",
            "trial": stay.stint.trial,
            "began": stay.stint.first,
            "ended": stay.stint.last,
            "status": stay.stint.status,
        }
        for stay in info.stays
    ]


def plot(info: WorkersInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw a lane for each worker and a bar for each stay."""
    lanes = sorted({(stay.place, stay.worker, stay.member, stay.lane) for stay in info.stays}, reverse=True)
    height = 150 + (_LANE if len(lanes) <= _FEW_LANES else _SLIM_LANE) * len(lanes)
    xaxis = {
        "title": {"text": "number of the start or end (no time)"},
        "range": [
            min((stay.stint.first for stay in info.stays), default=0),
            max((stay.end for stay in info.stays), default=1) + 0.5,
        ],
    }
    names = [(place, lane) for place, _, _, lane in lanes]
    yaxis = {"type": "category", "categoryorder": "array", "categoryarray": [*map(", ".join, names)], **_lanes(names)}
    figure = new_figure(info, theme, empty=not info.stays, height=height, xaxis=xaxis, yaxis=yaxis, barmode="overlay")
    for status, name in _COLORS.items():
        chosen = [stay for stay in info.stays if stay.stint.status == status]
        if chosen:
            bars = _bars(chosen, getattr(theme, name), theme.paper, status)
            named = "inside" if len(info.stays) <= _NAMED_STAYS else "none"
            figure.add_trace(bars.update(textposition=named, insidetextanchor="middle", textangle=0))
    return figure


def _lanes(names: list[tuple[str, str]]) -> dict[str, Any]:
    """The names of lanes; where all are of one node and device, that is the title of their axis."""
    places = {place for place, _ in names}
    if len(places) > 1:
        return {}
    node, _, device = "".join(places).partition(", ")
    named = f"host {node}, device {device}" if node else f"device {device}"
    short = [lane for _, lane in names]
    return {"tickvals": [*map(", ".join, names)], "ticktext": short, "title": {"text": escape(named)}}


def _bars(stays: list[Stay], color: str, edge: str, status: str) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=[f"{stay.place}, {stay.lane}" for stay in stays],
        base=[stay.stint.first for stay in stays],
        x=[stay.end - stay.stint.first for stay in stays],
        marker={"color": color, "line": {"color": edge, "width": 2}},
        text=[escape(stay.stint.trial) for stay in stays],
        hovertext=[f"<b>{escape(stay.stint.trial)}</b>, {status}" for stay in stays],
        hovertemplate="%{hovertext}<br>%{y}<extra></extra>",
        name=status,
        showlegend=True,
    )


def _found(info: WorkersInfo) -> str:
    ended = Counter(stay.stint.status for stay in info.stays)
    counts = ", ".join(f"{count} {status}" for status, count in ended.most_common())
    workers = len({(stay.place, stay.worker) for stay in info.stays})
    return f"{number_of(len(info.stays), 'stay')} of trials with {number_of(workers, 'worker')}: {counts}."


FIGURE: FigureKind[SweepData, WorkersInfo] = FigureKind(
    name="workers",
    heading="Which worker trained which trial",
    summary="a lane for each worker with its trials in the order in which they began and ended",
    caption=(
        "One bar per stay of a trial with a worker. The axis counts beginnings and ends of trials: records have no "
        "times, which would tell of private rows, for how long a training takes depends on how many of them join its "
        "batches. A worker that trains a stack has a lane for each of its members."
    ),
    position=77,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: omitted(DRAWN_STINTS, info(data).total, "stays, the last ones"),
    topic=Topic.TRIALS,
    needs=f"{_LEAST_STAYS} trials on two workers, two of them on one, outside a private selection",
)
