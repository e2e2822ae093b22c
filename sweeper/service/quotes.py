"""What the sweep of a spec would take of the account of its data: what a check says, and a submission reserves."""

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from sweeper.account.account import Account
from sweeper.account.rules import Reservation, share_of_room
from sweeper.planning.sources import check_warm_start
from sweeper.service.accounts import ServiceAccounts
from sweeper.service.cache import SharedCache
from sweeper.service.security.spec_policy import AcceptedSpec
from sweeper.service.settings import ServiceSettings
from sweeper.specification.addresses import parse_address

if TYPE_CHECKING:
    from sweeper.planning.account_fit import Fit
    from sweeper.planning.account_quote import AccountQuote
    from sweeper.planning.check import CheckedSpec

KEPT_PLANS = 32


class Quotes:
    """Plans specs that name an account; its methods may be called from any thread.

    What plans sweeps is imported by the first of them, which takes a second that a service without accounts saves.
    """

    def __init__(self, settings: ServiceSettings, accounts: ServiceAccounts) -> None:
        self._settings, self._accounts = settings, accounts
        self._planning = threading.Lock()
        self._plans: SharedCache[Reservation] = SharedCache(KEPT_PLANS)
        self._fits: SharedCache[Fit | None] = SharedCache(KEPT_PLANS)
        self._checked: SharedCache[CheckedSpec] = SharedCache(KEPT_PLANS)

    def quote(self, spec: AcceptedSpec, spender: str) -> "AccountQuote | None":
        """Return what the sweep of a spec would take of its account, and what would fit; ``None`` where it has none.

        Raises: as `plan`.
        """
        from sweeper.planning.account_quote import quote_of

        wanted = self._plan(spec)
        if wanted is None:
            return None
        wanted = replace(wanted, spender=spender)
        fit = self._fit(spec, wanted)
        with self._accounts.use(_name_of(spec)) as account:
            return quote_of(account, wanted, fit)

    def check(self, spec: AcceptedSpec) -> "CheckedSpec":
        """Return what ``sweeper check`` says of a spec that was accepted.

        Raises:
            SpecError: the spec does not fit its data.
            clipless.errors.CliplessError: its data are not here, or nothing can be planned.

        Guarantees:
            Nothing is fetched, trained, reserved or released; rows are read to be counted.
        """
        from sweeper.planning.check import check_spec

        def make() -> "CheckedSpec":
            with self._planning:
                return check_spec(spec.spec, self._settings.find_local_data())

        return self._checked.get(spec.digest, make, _stamps(spec))

    def plan(self, spec: AcceptedSpec, spender: str) -> Reservation | None:
        """Return what the sweep of a spec that was accepted asks of its account, ``None`` where it has none.

        Where there is no room for it now, it says what would fit.

        Raises:
            SpecError: the spec does not fit its data, or looks at them without paying, as does a sweep that steers it.
            clipless.errors.CliplessError: its data cannot be used, or nothing can be planned.
            RecordError: the account cannot be read.

        Guarantees:
            Nothing is trained, reserved or released. Rows are read to be counted and to be known again, by a digest
            whose key stays in the account; nothing else of them is in what is returned.
        """
        wanted = self._plan(spec)
        if wanted is None:
            return None
        wanted = replace(wanted, spender=spender)
        fit = self._fit(spec, wanted)
        return wanted if fit is None else replace(wanted, advice=fit.advice)

    def _plan(self, spec: AcceptedSpec) -> Reservation | None:
        """Return what the sweep of a spec asks, of which nobody is the spender yet; raises as `plan`."""
        from sweeper.planning.account_plan import make_reservation
        from sweeper.planning.loaded import LoadedSpec

        if spec.account is None:
            return None
        check_warm_start(spec.spec)
        with self._accounts.use(_name_of(spec)) as account:
            address, balance = account.address, account.balance()
            version = (balance.epsilon, balance.delta, *_stamps(spec))

        def make() -> Reservation:
            with self._planning:  # the rows of one data set at a time, while others read the account
                loaded = LoadedSpec.of(spec.spec, self._settings.find_data_dir())
                plan = loaded.plan()
                return make_reservation(plan, loaded.data, Account(address), sweep="", title=plan.name, spender="")

        return self._plans.get(spec.digest, make, version)

    def _fit(self, spec: AcceptedSpec, wanted: Reservation) -> "Fit | None":
        """Return what of a spec would fit where there is no room for its sweep, ``None`` where there is."""
        from sweeper.planning.account_fit import find_fit
        from sweeper.planning.loaded import LoadedSpec

        with self._accounts.use(_name_of(spec)) as account:
            address, has_room = account.address, share_of_room(account.balance(), wanted) <= 1.0
            version = (account.head.digest, *_stamps(spec))
        if has_room:
            return None

        def make() -> "Fit | None":
            with self._planning:
                return find_fit(LoadedSpec.of(spec.spec, self._settings.find_data_dir()), Account(address), wanted)

        return self._fits.get((spec.digest, wanted.spender), make, version)


def _name_of(spec: AcceptedSpec) -> str:
    return parse_address(str(spec.account)).name


def _stamps(spec: AcceptedSpec) -> tuple[float, ...]:
    """Return when the files of a spec were written: their rows may be other ones since."""
    return tuple(path.stat().st_mtime for path in spec.files if path.is_file())
