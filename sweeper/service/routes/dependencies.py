"""What the routes of the service share, made once from its settings."""

import json
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from anyio import to_thread
from fastapi import Path, Query
from starlette.requests import Request

from clipless.errors import DataError
from sweeper.account.rules import Reservation
from sweeper.errors import RefusalError
from sweeper.records import SweepStatus
from sweeper.service.accounts import ServiceAccounts
from sweeper.service.cache import SharedCache
from sweeper.service.catalog import FRONT_FILES, Catalog, version_of
from sweeper.service.problems import Redactor
from sweeper.service.quotes import Quotes
from sweeper.service.responses import views
from sweeper.service.responses.events import as_line
from sweeper.service.responses.exports import SerialExecutor
from sweeper.service.responses.models import FrontSummary, PlannedCourse, Submitted, SweepDetail
from sweeper.service.responses.rendered import RenderedResponse, ResponseCache
from sweeper.service.security.limits import RateLimiter, StreamLimiter
from sweeper.service.security.spec_policy import AcceptedSpec
from sweeper.service.security.tokens import KnownTokens
from sweeper.service.settings import ServiceSettings
from sweeper.service.supervision.launcher import Launcher
from sweeper.service.supervision.states import Standing
from sweeper.service.supervision.supervisor import Supervisor
from sweeper.service.telemetry import Metrics
from sweeper.store.sweep_folder import SweepFolder

JSON = "application/json"
STATE_SECONDS = 0.5  # for which a sweep's state is not looked up again
STALE_SECONDS = 2.0  # an older state is returned meanwhile: on a busy loop a look takes several rounds
KEPT_STATES = 1000
KEPT_SUMMARIES = 32
Offset = Annotated[int, Query(ge=0, le=10**9, description="Rows to leave out.")]
SweepId = Annotated[str, Path(max_length=150, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Id of a sweep.")]


@dataclass(frozen=True)
class Dependencies:
    """The parts of one service."""

    settings: ServiceSettings
    catalog: Catalog
    supervisor: Supervisor
    states: SharedCache[Standing]
    summaries: SharedCache[FrontSummary | None]
    answers: ResponseCache
    points: views.Points
    streams: StreamLimiter
    rates: RateLimiter
    metrics: Metrics
    redact: Redactor
    accounts: ServiceAccounts
    quotes: Quotes
    turns: SerialExecutor  # of plans, which read the data that a spec names
    tokens: KnownTokens | None

    @classmethod
    def of(cls, settings: ServiceSettings, launcher: Launcher) -> "Dependencies":
        """Make them.

        Raises:
            SweeperError: an account is declared for data that are not there.
            RecordError: the file of tokens, or an account, cannot be read.
        """
        catalog, metrics = Catalog(settings.out), Metrics()
        roots = [settings.out] if settings.data_dir is None else [settings.out, settings.data_dir]
        accounts = ServiceAccounts(settings)
        supervisor = Supervisor(settings, catalog, launcher, metrics, accounts=accounts)
        return cls(
            settings=settings,
            catalog=catalog,
            supervisor=supervisor,
            states=SharedCache(KEPT_STATES),
            summaries=SharedCache(KEPT_SUMMARIES),
            answers=ResponseCache(catalog),
            points=views.Points(),
            streams=StreamLimiter(settings.limits),
            rates=RateLimiter(settings.limits),
            metrics=metrics,
            redact=Redactor(*roots, stores=[address.store for address in settings.accounts.values()]),
            accounts=accounts,
            quotes=Quotes(settings, accounts),
            turns=SerialExecutor("specs to plan"),
            tokens=None if settings.tokens is None else KnownTokens(settings.tokens),
        )

    async def state(self, name: str) -> Standing:
        """Return how a sweep stands, looked up once for all requests of the same moment.

        Raises:
            UnknownSweepError: no such sweep.
        """
        look = partial(to_thread.run_sync, self.supervisor.status, name)
        return await self.states.get_async(name, look, None, STATE_SECONDS, STALE_SECONDS)

    async def status(self, name: str) -> RenderedResponse:
        """Return how a sweep stands, as JSON.

        Raises:
            UnknownSweepError: no such sweep.
            RecordError: it cannot be read.
        """
        standing = await self.state(name)
        asked = standing.submission
        said = None if asked is None else Submitted(submitted=asked.submitted, by=asked.by, trials=asked.trials)
        status = SweepDetail(id=name, state=standing.state, trouble=self.redact(standing.reason), submission=said)
        if not standing.started:
            return RenderedResponse.of_answer(status)

        def make(folder: SweepFolder) -> RenderedResponse:
            version = version_of(folder.path, FRONT_FILES)
            summary = self.summaries.get(name, partial(views.summary, folder), version)
            return RenderedResponse.of_answer(views.with_records(status, folder, summary, self.redact))

        return await self.answers.get(name, "status", make, ("sweep.json", *FRONT_FILES), more=repr(status))

    async def told(self, name: str) -> tuple[SweepStatus, bytes]:
        """Return how a sweep stands, in a word, and as JSON without what never changes.

        Raises:
            UnknownSweepError, RecordError: as `status`.
        """
        state, content = (await self.state(name)).state, json.loads((await self.status(name)).content)
        return state, as_line({key: value for key, value in content.items() if key not in ("spec", "versions")})

    async def course(self, spec: AcceptedSpec) -> PlannedCourse | None:
        """Return what ``sweeper check`` says of a spec when its turn comes; ``None`` where its data are not here.

        Raises:
            SweeperError, CliplessError: the spec does not fit its data, or nothing can be planned.
        """
        try:
            checked = await self.turns.run(self.quotes.check, spec)
        except (DataError, RefusalError):  # a driver may find its data, and has room
            return None
        return PlannedCourse.of(checked)

    async def plan(self, spec: AcceptedSpec, spender: str) -> Reservation | None:
        """Return what the sweep of a spec asks of its account, ``None`` where its data have none, when its turn comes.

        Raises:
            RefusalError: too many wait already.
            SweeperError, CliplessError: as `Quotes.plan`.
        """
        return None if spec.account is None else await self.turns.run(self.quotes.plan, spec, spender)

    def client(self, request: Request) -> str:
        """Return whose request it is, to count by."""
        holder = request.scope["state"]["holder"]
        return str(holder.id) if self.tokens is not None else (request.client.host if request.client else "unknown")


def person(request: Request) -> str:
    """Return the name of who asks, under which it is recorded what they do."""
    return str(request.scope["state"]["holder"].owner)
