"""What a sweep takes of the account of its data: reserved when it begins, charged at each draw, settled at its end."""

from pathlib import Path

from clipless.datasets import Dataset
from sweeper.account.account import Account
from sweeper.account.cost import AccountCost, event_cost
from sweeper.account.draws import Draw, draws_of
from sweeper.account.entries import Side
from sweeper.account.owner import user_of_machine
from sweeper.account.receipts import Receipt, make_receipt
from sweeper.account.rules import Reservation
from sweeper.planning.account_plan import make_reservation
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.ledger import Ledger
from sweeper.store.sweep_folder import SweepFolder


class AccountCharges:
    """The account of a sweep that has reserved from it.

    Guarantees:
        When ``charge`` has returned, the release is charged on the disk of the account; when it raises, no noise may be
        drawn.
    """

    def __init__(self, account: Account, wanted: Reservation, receipt: Receipt, folder: Path, ledger: Path) -> None:
        self._account, self._wanted, self._receipt = account, wanted, receipt
        self._folder, self._ledger = folder, ledger

    def refusal(self, draw: Draw) -> str | None:
        """Return why the account has no room for a release, ``None`` if it has."""
        return self._account.charge_refusal(self._wanted, self._costs(draw))

    def charge(self, draw: Draw) -> None:
        """Charge a release that the ledger says is drawn; one that is charged costs nothing more.

        Raises:
            AccountError, RecordError: it could not be charged.
        """
        self._account.charge(self._wanted, draw.what, self._costs(draw), self._ledger)

    def settle(self) -> None:
        """Give back what the sweep has reserved and not drawn.

        Raises:
            RecordError: the store cannot be written to; it can be settled later.
        """
        self._account.settle(self._wanted.sweep, self._ledger)
        self._receipt.seen(self._account).write(self._folder)

    def _costs(self, draw: Draw) -> dict[Side, AccountCost]:
        balance = self._account.balance()
        return {side: event_cost(event, balance.epsilon, balance.delta) for side, event in draw.events.items()}


def reserve_account(plan: SweepPlan, data: Dataset, folder: SweepFolder) -> AccountCharges | None:
    """Reserve everything that a sweep plans, and charge what its ledger has drawn and its account does not know.

    A sweep that resumes finds its own reservation. ``None`` where it names no account.

    Raises:
        AccountError: the account has no room for it, is another one than before, or has lost what this sweep saw of it.
        RecordError: the store or the folder cannot be read or written.
    """
    if plan.account is None:
        return None
    account = Account(plan.account.address)
    receipt = make_receipt(folder.path, account)
    title, spender = folder.path.name, user_of_machine()
    wanted = make_reservation(plan, data, account, sweep=receipt.sweep, title=title, spender=spender)
    account.reserve(wanted)
    receipt = receipt.seen(account)
    receipt.write(folder.path)
    charges = AccountCharges(account, wanted, receipt, folder.path, folder.ledger)
    for draw in draws_of(Ledger(folder.ledger)):
        charges.charge(draw)
    return charges
