"""How every sweep of the service stands, those that wait among them, for pages."""

from sweeper.service.cache import SharedCache
from sweeper.service.catalog import Catalog, by_age
from sweeper.service.problems import Redactor
from sweeper.service.standings import KEPT_SECONDS, if_known, recorded, standing
from sweeper.service.supervision.states import Standing
from sweeper.service.supervision.supervisor import Supervisor

KEPT_SWEEPS = 1000


class ServiceStandings:
    """What the service knows of its sweeps, those that wait among them."""

    def __init__(self, catalog: Catalog, supervisor: Supervisor, redact: Redactor) -> None:
        self._catalog, self._supervisor, self._redact = catalog, supervisor, redact
        self._kept: SharedCache[tuple[Standing, ...]] = SharedCache()
        self._ones: SharedCache[Standing] = SharedCache(KEPT_SWEEPS)

    def all(self) -> tuple[Standing, ...]:
        """As `Standings.all`."""
        return self._kept.get("all", self._all, max_age_seconds=KEPT_SECONDS)

    def one(self, name: str) -> Standing:
        """As `Standings.one`."""
        return self._ones.get(name, lambda: self._look(name), max_age_seconds=KEPT_SECONDS)

    def _look(self, name: str) -> Standing:
        known = self._supervisor.status(name)
        reason = known.reason or (recorded(self._catalog.out / name)[1] if known.started else "")
        said, place = self._redact(reason), known.place
        return standing(name, known.state, said, place, started=known.started, submission=known.submission)

    def _all(self) -> tuple[Standing, ...]:
        names = by_age([*self._catalog.names(), *self._supervisor.names()])
        return tuple(found for name in names if (found := if_known(self, name, self._redact)))
