"""Routes that only read: sweeps, points, fronts, cards, models and events."""

from functools import partial
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Path, Query, Request
from starlette.responses import Response

from sweeper.errors import RecordError, RefusalError, UnknownSweepError, public_sentence
from sweeper.privacy.card.content import CardContent
from sweeper.records import Point, SweepStatus
from sweeper.results.exporters import PICTURES
from sweeper.results.pick import read_numbers
from sweeper.results.sweep import Picked, Sweep
from sweeper.service.catalog import FRONT_FILES, REHEARSAL_FILES, by_age
from sweeper.service.responses import exports, views
from sweeper.service.responses.downloads import NO_MODEL, Archive, Download
from sweeper.service.responses.events import EventStream, Feeds, Position
from sweeper.service.responses.models import (
    ActionList,
    FigureNumbers,
    FrontContent,
    PickedPoint,
    PointPage,
    RehearsalList,
    StreamedEvent,
    SweepDetail,
    SweepPage,
    SweepRow,
    TrialTable,
)
from sweeper.service.responses.rendered import RenderedResponse
from sweeper.service.routes.dependencies import JSON, Dependencies, Offset, SweepId
from sweeper.service.security.access import holder_of
from sweeper.service.supervision.states import Standing
from sweeper.store.jsonl import to_text
from sweeper.store.sweep_folder import SweepFolder

MaxPrice = Annotated[float | None, Query(description="Largest price to accept, the epsilon of the whole sweep.")]
MaxEpsilon = Annotated[float | None, Query(description="Largest own epsilon to accept, fixed in advance.")]
Minimum = Annotated[
    list[str] | None, Query(alias="min", max_length=20, description="Smallest value, certified@36/255=0.3; repeatable.")
]
FigureName = Annotated[
    str | None,
    Query(pattern="^[a-z0-9-]{1,40}$", description="A figure of the report: as a page, a picture, or its numbers."),
]
Preset = Annotated[
    Literal["column", "page"] | None,
    Query(description="A picture as wide as a paper's column, 85 mm, or page, 178 mm."),
]
FrontFormat = Literal["json", "csv", "tex", "html", "png", "svg", "pdf"]
NDJSON = "application/x-ndjson"
CSV = "text/csv"
MARKDOWN = "text/markdown"
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {EventStream.media_type: {"schema": StreamedEvent.model_json_schema()}}},
    204: {"description": "Nothing more: the client has seen the end"},
}


def routes(parts: Dependencies, feeds: Feeds) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api/v1/sweeps", tags=["read"])
    most = parts.settings.limits.page
    turns = exports.SerialExecutor("pages and pictures to draw")
    few, many = min(50, most), min(500, most)
    Limit = Annotated[int, Query(ge=1, le=most, description="Rows of a page, at most.")]

    @router.get("")
    def list_sweeps(offset: Offset = 0, limit: Limit = few) -> SweepPage:
        """List sweeps, newest first."""
        names = by_age([*parts.catalog.names(), *parts.supervisor.names()])
        shown = [_listed(parts, name) for name in names[offset : offset + limit]]
        return SweepPage(sweeps=[row for row in shown if row], total=len(names), offset=offset, limit=limit)

    @router.get("/{sweep}", response_model=SweepDetail)
    async def show_sweep(request: Request, sweep: SweepId) -> Response:
        """Say how a sweep stands: its state, its spec, and its front in numbers."""
        return (await parts.status(sweep)).to(request)

    @router.get("/{sweep}/points", response_model=PointPage, responses=in_formats(NDJSON, CSV))
    async def list_points(
        request: Request,
        sweep: SweepId,
        offset: Offset = 0,
        limit: Limit = many,
        format: Literal["json", "ndjson", "csv"] = "json",
    ) -> Response:
        """Return points in the order in which they arrived: a page of them, or all of them as lines or as a table."""
        if format == "csv":
            make = partial(_table, views.points_csv)
            return (await parts.answers.get(sweep, "points.csv", make, FRONT_FILES)).to(request)
        if format == "ndjson":
            lines = partial(_lines, parts)
            return (await parts.answers.get(sweep, "points.ndjson", lines, ("points.jsonl",))).to(request)
        # Pages are not kept: a client would choose how many there are.
        page = await to_thread.run_sync(_page, parts, parts.catalog.folder(sweep), offset, limit)
        return page.to(request)

    @router.get("/{sweep}/rehearsals", response_model=RehearsalList)
    async def list_rehearsals(request: Request, sweep: SweepId) -> Response:
        """Return the configurations that were rehearsed before the first trial, best first; they are no trials."""
        return (await parts.answers.get(sweep, "rehearsals", _rehearsals, REHEARSAL_FILES)).to(request)

    @router.get("/{sweep}/trials", response_model=TrialTable)
    async def list_trials(request: Request, sweep: SweepId) -> Response:
        """Return the trials: how each ended, the values of its best point with their intervals, its configuration."""
        return (await parts.answers.get(sweep, "trials", _trials, FRONT_FILES)).to(request)

    @router.get("/{sweep}/actions")
    def list_actions(sweep: SweepId) -> ActionList:
        """Return what people did to a sweep, oldest first: stops, extensions, configurations, regions, notes, tags."""
        parts.supervisor.status(sweep)
        return views.actions(parts.settings.out / sweep)

    @router.get("/{sweep}/front", response_model=FrontContent | FigureNumbers, responses=in_formats(*exports.DRAWN))
    async def show_front(
        request: Request,
        sweep: SweepId,
        format: FrontFormat = "json",
        figure: FigureName = None,
        preset: Preset = None,
    ) -> Response:
        """Return the front: points as JSON, CSV or LaTeX, the report as HTML, a picture, or one of its figures."""
        if preset is not None and format not in {one.value for one in PICTURES}:
            raise RefusalError(f"Expected format=png, svg or pdf with preset={preset}, got {format}", 422)
        if figure is None and format == "json":
            return (await parts.answers.get(sweep, "front.json", _front, FRONT_FILES)).to(request)
        if figure is None and format == "csv":
            table = partial(_table, views.front_csv)
            return (await parts.answers.get(sweep, "front.csv", table, FRONT_FILES)).to(request)
        lost = (await parts.state(sweep)).state is SweepStatus.LOST  # which a service knows of other machines too
        draw = partial(exports.draw, format_=format, figure=figure, preset=preset, lost=lost)
        answer = await parts.answers.get(sweep, ("drawn", figure, format, preset), draw, run=turns.run, more=repr(lost))
        return answer.to(request, **{"Content-Security-Policy": exports.POLICY})

    async def pick(
        sweep: SweepId, max_price: MaxPrice = None, max_epsilon: MaxEpsilon = None, minimum: Minimum = None
    ) -> Picked:
        folder = parts.catalog.folder(sweep)
        conditions = read_numbers(minimum, "certified@36/255=0.3", "min")
        take = partial(Sweep(folder.path).pick, max_epsilon, conditions, max_price=max_price)
        return await to_thread.run_sync(take)

    Pick = Annotated[Picked, Depends(pick)]

    @router.get("/{sweep}/pick", response_model=PickedPoint)
    async def pick_point(request: Request, sweep: SweepId, picked: Pick) -> Response:
        """Pick the point of best utility within the conditions: the point, its configuration and its card."""
        answer = PickedPoint(
            trial=picked.trial.id,
            epoch=picked.point.epoch,
            made_from=picked.point.made_from,
            values=picked.point.values,
            test=picked.point.test,
            noisy=picked.point.noisy,
            price=picked.card.content.guarantee.price,
            config=picked.trial.config,
            card=picked.card.content,
            model=f"/api/v1/sweeps/{sweep}/models/{model_of(picked.point)}",
        )
        return RenderedResponse.of_answer(answer).to(request)

    @router.get("/{sweep}/card", response_model=CardContent, responses=in_formats(MARKDOWN))
    async def show_card(request: Request, picked: Pick, format: Literal["md", "json"] = "md") -> Response:
        """Return the privacy card of the point that `pick` picks."""
        card = picked.card
        if format == "json":
            return RenderedResponse.of(to_text(card.to_json(), indent=2).encode(), JSON).to(request)
        return RenderedResponse.of(card.to_markdown().encode(), f"{MARKDOWN}; charset=utf-8").to(request)

    @router.get("/{sweep}/papers", response_class=Archive, status_code=200)
    def download_papers(sweep: SweepId, picked: Pick) -> Archive:
        """Return the point that `pick` picks with its papers, as a zip archive: model, card, hashes, ledger, spec."""
        return Archive.of(picked, f"{sweep}-{picked.point.name}.zip")

    @router.get("/{sweep}/models/{trial}/{epoch}", response_class=Download, status_code=200)
    def download_model(
        sweep: SweepId,
        trial: Annotated[str, Path(max_length=50, pattern="^[A-Za-z0-9]+$")],
        epoch: Annotated[int, Path(ge=1, le=10**9)],
        made_from: Annotated[str, Query(max_length=50, pattern="^[A-Za-z0-9-]*$")] = "",
    ) -> Download:
        """Return the model of a point of the front, as safetensors."""
        folder = parts.catalog.folder(sweep)
        if not views.is_admitted(folder, (trial, epoch, made_from)):
            raise UnknownSweepError(NO_MODEL)
        path = folder.path / folder.model_name(trial, epoch, made_from)
        return Download(path, f"{sweep}-{path.name}")

    @router.get("/{sweep}/events", response_class=EventStream, status_code=200, responses=STREAMED)
    async def stream_events(
        request: Request, sweep: SweepId, last_event_id: Annotated[str | None, Header(max_length=64)] = None
    ) -> Response:
        """Stream what happens: points, ends of trials and the status, until the sweep has ended."""
        position = None if last_event_id is None else Position.parse(last_event_id)
        standing = await parts.state(sweep)
        folder = parts.settings.out / sweep
        if position is not None and standing.state.is_end and await to_thread.run_sync(position.is_last, folder):
            return Response(None, 204)  # to a browser: do not come back

        def may_read() -> bool:
            return parts.tokens is None or holder_of(parts.tokens, request.headers) is not None

        content = feeds.stream(sweep, folder, position, may_read)
        return EventStream(content, parts.streams.one(parts.client(request)))

    return router


def model_of(point: Point) -> str:
    """Return the end of the address of a point's model."""
    return f"{point.trial}/{point.epoch}" + (f"?made_from={point.made_from}" if point.made_from else "")


def in_formats(*media_types: str) -> dict[int | str, dict[str, Any]]:
    """Return what `openapi.json` says of the formats of an answer beside JSON."""
    return {200: {"content": {media_type: {"schema": {"type": "string"}} for media_type in media_types}}}


def _listed(parts: Dependencies, name: str) -> SweepRow | None:
    try:
        standing = parts.supervisor.status(name)
    except UnknownSweepError:  # deleted meanwhile
        return None
    except RecordError as error:  # one that cannot be read hides no other
        failed = Standing(name=name, state=SweepStatus.FAILED)
        return views.listed(name, parts.settings.out / name, failed, parts.redact, public_sentence(error))
    return views.listed(name, parts.settings.out / name, standing, parts.redact)


def _front(folder: SweepFolder) -> RenderedResponse:
    return RenderedResponse.of(to_text(views.front_content(folder)).encode(), JSON)


def _rehearsals(folder: SweepFolder) -> RenderedResponse:
    return RenderedResponse.of_answer(views.rehearsals(folder))


def _trials(folder: SweepFolder) -> RenderedResponse:
    return RenderedResponse.of_answer(views.trial_table(folder))


def _lines(parts: Dependencies, folder: SweepFolder) -> RenderedResponse:
    return RenderedResponse.of("".join(f"{to_text(row)}\n" for row in parts.points.rows(folder)).encode(), NDJSON)


def _page(parts: Dependencies, folder: SweepFolder, offset: int, limit: int) -> RenderedResponse:
    rows, total = parts.points.page(folder, offset, limit)
    page = {"points": rows, "total": total, "offset": offset, "limit": limit}  # rows as they were written
    return RenderedResponse.of(to_text(page).encode(), JSON)


def _table(make: Any, folder: SweepFolder) -> RenderedResponse:
    return RenderedResponse.of(make(folder).encode(), CSV)
