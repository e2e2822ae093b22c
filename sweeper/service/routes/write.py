"""Routes that change something: submit, stop, resume, extend. They need a token that permits to write."""

from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Body, Header, Path, Request
from pydantic import BaseModel
from starlette.responses import Response

from sweeper.service.responses.models import DataList, SweepState
from sweeper.service.responses.views import data_list
from sweeper.service.routes.dependencies import Dependencies, SweepId, person
from sweeper.service.security.spec_policy import YAML_TYPES, read_spec
from sweeper.service.supervision.submissions import hash_texts
from sweeper.specification.spec import schema

MAX_TRIALS = 1_000_000
TrialId = Annotated[str, Path(max_length=50, pattern="^[A-Za-z0-9]+$", description="Id of a trial, such as t0007.")]
Key = Annotated[
    str | None, Header(min_length=1, max_length=200, description="The client's own name for this submission.")
]
SPEC_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object", "description": "A spec, see /api/v1/schema."}},
            YAML_TYPES[0]: {"schema": {"type": "string", "description": "A spec."}},
        },
    }
}


class Extension(BaseModel, extra="forbid", strict=True):
    """How far a sweep is to go."""

    trials: Annotated[int, Body(ge=1, le=MAX_TRIALS, description="How many in all, those that ran included.")]


def routes(parts: Dependencies) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/api/v1", tags=["write"])
    supervisor = parts.supervisor

    @router.post("/sweeps", status_code=201, responses={200: {"model": SweepState}}, openapi_extra=SPEC_BODY)
    async def submit_sweep(request: Request, answer: Response, idempotency_key: Key = None) -> SweepState:
        """Submit a spec, as YAML or JSON, to be run; the same Idempotency-Key again gives the same sweep."""
        body = await request.body()
        kind = request.headers.get("content-type", "")

        key = None if idempotency_key is None else hash_texts(parts.client(request), idempotency_key)
        digest, by = hash_texts(kind.partition(";")[0], body), person(request)

        spec = await to_thread.run_sync(read_spec, body, kind, parts.settings, parts.catalog)
        submitted = supervisor.find(key, digest)
        if submitted is None:
            wanted = await parts.plan(spec, by)
            submit = partial(supervisor.submit, spec, key, digest, by=by, wanted=wanted)
            submitted = await to_thread.run_sync(submit)
        stands = await to_thread.run_sync(state_after, parts, submitted.name)
        if submitted.is_new:
            answer.headers["Location"] = stands.url
        else:
            answer.status_code = 200
        return stands

    @router.post("/sweeps/{sweep}/stop", status_code=202)
    def stop_sweep(request: Request, sweep: SweepId) -> SweepState:
        """Stop a sweep that waits or runs; its front stays."""
        supervisor.stop(sweep, by=person(request))
        return state_after(parts, sweep)

    @router.post("/sweeps/{sweep}/trials/{trial}/stop", status_code=202)
    def stop_trial(request: Request, sweep: SweepId, trial: TrialId) -> SweepState:
        """Stop one running trial after its epoch."""
        supervisor.stop(sweep, trial, by=person(request))
        return state_after(parts, sweep)

    @router.post("/sweeps/{sweep}/resume", status_code=202)
    def resume_sweep(request: Request, sweep: SweepId) -> SweepState:
        """Resume a sweep that was stopped, interrupted or has failed."""
        supervisor.resume(sweep, by=person(request))
        return state_after(parts, sweep)

    @router.post("/sweeps/{sweep}/extend", status_code=202)
    def extend_sweep(request: Request, sweep: SweepId, extension: Extension) -> SweepState:
        """Run more trials of a sweep that does not run."""
        supervisor.resume(sweep, trials=extension.trials, by=person(request))
        return state_after(parts, sweep)

    @router.get("/data", tags=["read"])
    def list_data() -> DataList:
        """List what specs may name as data: the data sets installed here, and tables that the operator declared."""
        return data_list(parts.settings.data_dir)

    @router.get("/schema", tags=["read"])
    def show_schema() -> dict[str, Any]:
        """Return the JSON schema of a spec."""
        return schema()

    return router


def state_after(parts: Dependencies, name: str) -> SweepState:
    """Return how a sweep stands after a request."""
    parts.states.forget(name)
    return SweepState(id=name, state=parts.supervisor.status(name).state, url=f"/api/v1/sweeps/{name}")
