"""Routes by which a team works on a sweep: other configurations, another region, notes, tags, and its end.

They need a token that permits to write.
"""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from sweeper.errors import SpecError
from sweeper.records import Scalar
from sweeper.results.notes import MAX_LENGTH, add_note, add_tag
from sweeper.service.responses.accounts import AccountQuoted
from sweeper.service.responses.models import CheckedSpec, Deleted, Enqueued, Noted, Steered
from sweeper.service.routes.dependencies import Dependencies, SweepId, person
from sweeper.service.routes.write import SPEC_BODY, TrialId, state_after
from sweeper.service.security.spec_policy import read_spec
from sweeper.specification.objectives import MOST
from sweeper.store.requests import enqueue, steer
from sweeper.store.sweep_folder import SweepFolder

MAX_VALUES = 200


class Configuration(BaseModel, extra="forbid", strict=True):
    """A configuration to try next."""

    values: Annotated[
        dict[str, Scalar],
        Field(max_length=MAX_VALUES, description="Open hyperparameters by dotted name; those left out are sampled."),
    ]


class Region(BaseModel, extra="forbid", strict=True):
    """A region of the front to search in."""

    region: Annotated[
        list[Annotated[str, Field(max_length=200)]],
        Field(max_length=MOST, description="Bounds on objectives, epsilon <= 3; none to search everywhere."),
    ]


class Note(BaseModel, extra="forbid", strict=True):
    """What somebody says about a trial."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_LENGTH)]


class Tag(BaseModel, extra="forbid", strict=True):
    """A tag of a trial; the last value of a key counts."""

    key: Annotated[str, Field(min_length=1, max_length=100)]
    value: Annotated[str, Field(max_length=MAX_LENGTH)]


Plan = Annotated[bool, Query(description="Plan the sweep as its run would: trials, rows, and about how long.")]


def routes(parts: Dependencies) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api/v1", tags=["write"])

    @router.post("/check", openapi_extra=SPEC_BODY)
    async def check_spec(request: Request, plan: Plan = False) -> CheckedSpec:
        """Check a spec as submitting it would, and say what it costs; nothing is kept.

        Of data with an account rows are counted, and compared with those of the account. Of others none are read,
        unless the sweep is to be planned, for which rows are counted.
        """
        body, kind = await request.body(), request.headers.get("content-type", "")
        spec, account = await to_thread.run_sync(read_spec, body, kind, parts.settings, parts.catalog), None
        if await parts.plan(spec, person(request)) is not None:
            quote = await to_thread.run_sync(parts.quotes.quote, spec, person(request))
            account = None if quote is None else AccountQuoted.of(quote, parts.redact)
        course = await parts.course(spec) if plan else None
        return CheckedSpec(
            name=spec.name,
            trials=spec.trials,
            price=spec.price,
            epsilon=spec.epsilon,
            delta=spec.delta,
            account=account,
            plan=course,
        )

    @router.post("/sweeps/{sweep}/enqueue", status_code=202)
    def enqueue_configuration(request: Request, sweep: SweepId, configuration: Configuration) -> Enqueued:
        """Try a configuration next, now or when the sweep is resumed or extended."""
        try:
            folder = parts.supervisor.check_spender(sweep, person(request))
            chosen = enqueue(folder, configuration.values, by=person(request))
        except ArithmeticError:
            raise SpecError("Expected numbers within the range of a computer (values)") from None
        stands, records = state_after(parts, sweep), SweepFolder(folder)
        is_full = len(records.trials()) >= records.read_manifest().course.trials
        return Enqueued(**dict(stands), values=chosen, waits=stands.state.is_end or is_full)

    @router.post("/sweeps/{sweep}/steer", status_code=202)
    def steer_sweep(request: Request, sweep: SweepId, region: Region) -> Steered:
        """Search within a region of the front from now on, or everywhere again; recorded with the sweep."""
        bounds = steer(parts.supervisor.check_spender(sweep, person(request)), region.region, by=person(request))
        return Steered(**dict(state_after(parts, sweep)), region=[str(bound) for bound in bounds])

    @router.post("/sweeps/{sweep}/trials/{trial}/note", status_code=201)
    def note_trial(request: Request, sweep: SweepId, trial: TrialId, note: Note) -> Noted:
        """Add a note to a trial, and to its MLflow run if that can be reached."""
        trouble = add_note(parts.catalog.folder(sweep).path, trial, note.text, by=person(request))
        return Noted(**dict(state_after(parts, sweep)), trial=trial, tracked=trouble is None)

    @router.post("/sweeps/{sweep}/trials/{trial}/tag", status_code=201)
    def tag_trial(request: Request, sweep: SweepId, trial: TrialId, tag: Tag) -> Noted:
        """Set a tag of a trial, and of its MLflow run if that can be reached."""
        trouble = add_tag(parts.catalog.folder(sweep).path, trial, tag.key, tag.value, by=person(request))
        return Noted(**dict(state_after(parts, sweep)), trial=trial, tracked=trouble is None)

    @router.delete("/sweeps/{sweep}")
    def delete_sweep(sweep: SweepId) -> Deleted:
        """Delete a sweep that does not run; what it spent is kept under ``spent``."""
        kept = parts.supervisor.delete(sweep)
        parts.states.forget(sweep)
        where = None if kept is None else f"{kept.parent.name}/{kept.name}"
        return Deleted(id=sweep, kept=where)

    return router
