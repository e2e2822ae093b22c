"""Parts of the page that depend on who asks, or on more than a sweep's records: made anew at each request.

They are the list, the head of a sweep, the page of a trial, and the forms. A reader's answers offer no form.
"""

import gzip
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from math import isfinite

from dashboards.data import SweepData
from dashboards.live import account_page, forms, fragments, header, trial_page
from dashboards.live.encoding import Resource
from dashboards.live.snapshots import Snapshot, Snapshots
from dashboards.live.sweep_list import sweeps
from dashboards.live.view import Action, View
from dashboards.pages._html import Html, join, tag
from dashboards.summary import cut_off, total_price
from sweeper.errors import RecordError, RefusalError, SweeperError, UnknownAccountError, UnknownSweepError
from sweeper.privacy.entries import Entry
from sweeper.privacy.ledger import Ledger
from sweeper.service.accounts import VERIFIED_SECONDS, ServiceAccounts
from sweeper.service.catalog import Catalog
from sweeper.service.security.access import BROWSER
from sweeper.service.security.tokens import Holder, Role
from sweeper.service.standings import Standings, submitted_spec
from sweeper.service.supervision.states import Standing
from sweeper.store.manifest import Manifest
from sweeper.store.requests import steered

_FURTHER = 1, 10  # trials, of which the form of an extension says the price before somebody types a number
_MOST_FURTHER = 10_000
PARTS = ("sweeps", "head", "trial", "trial-records", "action")
PARTS_OF_ACCOUNTS = ("accounts", "account", "entries", "verdict")
_OF_TRIALS = (Action.STOP_TRIAL, Action.NOTE, Action.TAG)


@dataclass(frozen=True, slots=True)
class Rights:
    """Permissions of the requesting user."""

    may_write: bool = False
    key: str = ""  # what forms send to prove where they come from
    session: bool = False  # whether a cookie says who it is, so that signing out means something
    owner: str = ""  # the name under which it is recorded what they do; empty where nobody is asked for one
    spender: str = ""  # in whose name their sweeps are charged to an account

    @classmethod
    def of(cls, holder: Holder | None) -> "Rights":
        """Return those of a holder as the service has found it, none without one."""
        if holder is None:
            return cls()
        is_browser = holder.id.endswith(BROWSER)
        may_write = holder.role is Role.WRITE or bool(holder.form_key)
        return cls(may_write, holder.form_key, is_browser, holder.owner if is_browser else "", holder.owner)


class DynamicFragments:
    """Makes these parts."""

    def __init__(
        self,
        snapshots: Snapshots,
        catalog: Catalog,
        standings: Standings,
        tracking: str | None = None,
        now: Callable[[], datetime] = datetime.now,
        accounts: ServiceAccounts | None = None,
    ) -> None:
        self._snapshots, self._catalog, self._standings = snapshots, catalog, standings
        self._accounts = accounts
        self._tracking, self._now, self._pace = tracking, now, header.Pace()

    def standing(self, name: str) -> Standing:
        """Return how a sweep stands.

        Raises:
            UnknownSweepError: no such sweep.
        """
        return self._standings.one(name)

    def token(self, name: str = "") -> str:
        """Return a text that changes when the list does, or how one sweep stands."""
        found = self._standings.one(name) if name else (self._snapshots.token(), self._standings.all())
        return sha256(repr(found).encode()).hexdigest()[:16]

    def account_token(self, name: str = "") -> str:
        """Return a text that changes when an account does, or one of the list.

        Raises:
            UnknownAccountError: no such account.
            RecordError: it cannot be read.
        """
        known = self._known_accounts()
        return "-".join(known.digest(one)[:16] for one in ([name] if name else known.names))

    def verdict_token(self) -> str:
        """Return a text that changes when an account may be verified anew."""
        return str(int(self._now().timestamp() // VERIFIED_SECONDS))

    def _known_accounts(self) -> ServiceAccounts:
        if self._accounts is None:
            raise UnknownAccountError("Expected a service with accounts; serve with --account")
        return self._accounts

    def get(self, name: str, view: View, rights: Rights) -> Resource:
        """Return one of `PARTS`, or of `PARTS_OF_ACCOUNTS`.

        Raises:
            SweeperError: no such sweep or trial, or one that cannot be read.
            RefusalError: a form, for one who may not write.
        """
        mark = tag("span", hidden=True, data_session=rights.owner) if rights.session else None
        markup = str(join([self._made(name, view, rights), mark]))
        return Resource(gzip.compress(markup.encode(), 4), "text/html; charset=utf-8")

    def _made(self, name: str, view: View, rights: Rights) -> Html:
        if name == "sweeps":
            rows = self._snapshots.summaries()
            going = [(row, row.share) for row in rows if row.share is not None]
            left = {row.name: self._pace.seconds_left(row.name, share, run=row.resumed) for row, share in going}
            known = {name: seconds for name, seconds in left.items() if seconds is not None}
            return sweeps(self._standings.all(), rows, self._now(), known, may_write=rights.may_write)
        if name == "action":
            return self._form(view, rights)
        if name in PARTS_OF_ACCOUNTS:
            return self._of_account(name, view, rights)
        standing = self._standings.one(view.sweep)
        if name == "trial":
            return self._trial(view, standing, rights)
        if name == "trial-records":
            return trial_page.trial_records(self._snapshots.get(view.sweep), view.trial)
        return self._head(view, standing, rights)

    def _of_account(self, name: str, view: View, rights: Rights) -> Html:
        known = self._known_accounts()
        if name == "accounts":
            return account_page.account_list([known.state(one, rights.spender) for one in known.names])
        if name == "account":
            return account_page.account_head(known.state(view.account, rights.spender), rights.spender, self._is_here)
        if name == "entries":
            rows, total = known.entries(view.account, view.behind, account_page.SHOWN_ENTRIES)
            return account_page.entry_table(view.account, rows, total, view.behind)
        return account_page.verdict(known.verify(view.account))

    def _is_here(self, sweep: str) -> bool:
        with suppress(UnknownSweepError):
            return self._standings.one(sweep) is not None
        return False

    def _head(self, view: View, standing: Standing, rights: Rights) -> Html:
        if not standing.started:
            actions, why_not = self._offered(standing, None, rights)
            offers = header.offers(view, actions, why_not, may_write=rights.may_write, has_points=False)
            spec = submitted_spec(self._catalog.out, view.sweep)
            return header.waiting_header(standing, spec, offers=offers)
        snapshot = self._snapshots.get(view.sweep)
        manifest = self._manifest(snapshot)
        has_points = snapshot.data is not None and bool(snapshot.data.points)
        actions, why_not = self._offered(standing, manifest, rights, snapshot.data)
        offers = header.offers(view, actions, why_not, may_write=rights.may_write, has_points=has_points)
        progress = header.Progress(0)
        if snapshot.data is not None:
            progress = header.progress_of(snapshot.data, manifest, view.sweep, self._pace, runs=standing.runs)
        region = _region(snapshot)
        return header.sweep_header(snapshot, standing, progress, region, offers=offers)

    def _trial(self, view: View, standing: Standing, rights: Rights) -> Html:
        snapshot = self._snapshots.get(view.sweep)
        address = fragments.tracking_address(snapshot.sweep(), self._tracking)
        actions, _ = self._offered(standing, self._manifest(snapshot), rights, snapshot.data)
        offers = actions if rights.may_write else None
        return trial_page.trial_page(snapshot, view.trial, address, runs=standing.runs, offers=offers)

    def _offered(
        self, standing: Standing, manifest: Manifest | None, rights: Rights, data: SweepData | None = None
    ) -> tuple[tuple[Action, ...], str]:
        """Return what the service would not refuse of what can be done with a sweep, and why not the rest."""
        trials = 0 if data is None else len(data.trials)
        why_not = self._bars_resuming(standing, rights)
        return header.offered(standing, manifest, trials, may_resume=not why_not), why_not

    def _bars_resuming(self, standing: Standing, rights: Rights) -> str:
        """Return why its account does not let the one who asks go on with a sweep, in a sentence; empty if it does."""
        if self._accounts is None or standing.runs or not rights.may_write:
            return ""
        folder, by = self._catalog.out / standing.name, "" if standing.submission is None else standing.submission.by
        try:
            self._accounts.check_resume(folder, by, rights.spender)
        except RefusalError:
            return f"It is charged to {self._accounts.spender_of(folder, by)}, who alone can go on with it."
        except SweeperError:
            return "It cannot go on: its account does not let it."
        return ""

    def _form(self, view: View, rights: Rights) -> Html:
        if not rights.may_write and view.action is not Action.SIGN_OUT:
            raise RefusalError("Expected a session that may write; sign in with a token made with --role write", 403)
        if not view.sweep:
            return forms.form(forms.Asked(view=view, key=rights.key))
        standing = self._standings.one(view.sweep)
        if not standing.started:
            return forms.form(forms.Asked(view=view, key=rights.key))
        snapshot = self._snapshots.get(view.sweep)
        if view.action in _OF_TRIALS:
            trial_page.known_trial(snapshot.sweep(), view.trial)
        manifest, region = self._manifest(snapshot), _region(snapshot)
        hides = manifest is None or manifest.selects_privately
        left = 0 if manifest is None or hides else _left(snapshot, manifest)
        anew = 0 if hides or snapshot.data is None else cut_off(snapshot.data)
        numbers: tuple[int, ...] = ()
        if view.action is Action.RESUME and left + anew:
            numbers = (0,)
        elif view.action is Action.EXTEND:
            numbers = (min(view.further, _MOST_FURTHER),) if view.further else _FURTHER
        more = _price_with_more(snapshot, numbers, left + anew) if numbers and not hides else {}
        asked = forms.Asked(
            view=view,
            data=snapshot.data,
            manifest=manifest,
            region=region,
            with_more=more,
            left=left,
            anew=anew,
            key=rights.key,
        )
        return forms.form(asked)

    def _manifest(self, snapshot: Snapshot) -> Manifest | None:
        """Return what ``sweep.json`` says of a sweep, None where it cannot be read."""

        def read() -> Manifest | None:
            try:
                return self._catalog.folder(snapshot.name).read_manifest()
            except SweeperError:
                return None

        return snapshot.once("manifest", read)


def _price_with_more(snapshot: Snapshot, numbers: tuple[int, ...], left: int) -> Mapping[int, float]:
    """Return the price of a sweep that nothing fixes with those left and further trials, where it is known."""
    data = snapshot.data
    if data is None or data.result.claim.exploratory:
        return {}
    price = total_price(data)
    if price is None or price.fixed or not isfinite(price.epsilon):
        return {}

    def make() -> Mapping[int, float]:
        ledger = Ledger(snapshot.ledger)
        charged, spending = ledger.charged_with(), ledger.spending

        def cost(trials: int, like: Entry, *, tight: bool = False) -> float:
            more = charged.with_more(left + trials, like)
            return spending.prices(more, price.delta, tight=tight)["winner"].epsilon

        distinct = {(entry.planned, entry.planned_scores): entry for entry in ledger.entries() if entry.drawn}
        dearest = max(distinct.values(), key=lambda like: cost(numbers[-1], like), default=None)
        return {} if dearest is None else {n: cost(n, dearest, tight=True) for n in numbers}

    with suppress(RecordError):
        return snapshot.once(f"with {left} left and {numbers} more", make)
    return {}


def _left(snapshot: Snapshot, manifest: Manifest) -> int:
    """Return how many planned trials have not begun; an extended sweep trains them too."""
    data = snapshot.data
    return max(0, manifest.course.trials - (0 if data is None else data.result.trials_begun))


def _region(snapshot: Snapshot) -> Sequence[str]:
    try:
        return steered(snapshot.ledger.parent)
    except RecordError:
        return ()
