"""What a sweep takes of the account of its data: reserved when it begins, charged at each draw, settled at its end."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from clipless.datasets import Dataset
from sweeper.account.account import Account, charge_draw
from sweeper.account.draws import WINNER, Draw, draw_of_candidates, draw_of_selection, draws_of
from sweeper.account.owner import user_of_machine
from sweeper.account.positions import NOTHING_YET
from sweeper.account.receipts import Receipt, make_receipt, read_receipt
from sweeper.account.rules import Reservation
from sweeper.errors import AccountError, RecordError
from sweeper.planning.account_plan import make_reservation
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.ledger import Ledger
from sweeper.program import program
from sweeper.specification.addresses import parse_address
from sweeper.store.sweep_folder import SweepFolder

Explain = Callable[[Account, Reservation], None]  # raises with what would fit of a sweep that is refused


class AccountCharges:
    """The account of a sweep that has reserved from it.

    Guarantees:
        When ``charge`` has returned, the release is charged on the disk of the account; when it raises, no noise may be
        drawn.
    """

    def __init__(self, account: Account, wanted: Reservation, receipt: Receipt, folder: Path, ledger: Path) -> None:
        self._account, self._wanted, self._receipt = account, wanted, receipt
        self._folder, self._ledger = folder, ledger

    def make_room(self, draws: Sequence[Draw]) -> str | None:
        """Hold room for releases until they are charged, or say why there is none; see `Account.make_room`."""
        return self._account.make_room(self._wanted, [draw.costs(*self._account.terms) for draw in draws])

    def charge(self, draw: Draw) -> None:
        """Charge a release, see `charge_draw`."""
        charge_draw(self._account, self._wanted, draw, self._ledger)

    def catch_up(self) -> None:
        """Charge what the ledger has drawn and the account does not know, as after a kill between the two.

        Raises:
            AccountError, RecordError: it could not be charged.
        """
        known = self._account.balance().sweeps.get(self._wanted.sweep)
        for draw in draws_of(Ledger(self._ledger)):
            if known is None or draw.what not in known.charged:
                self.charge(draw)

    def settle(self) -> None:
        """Give back what the sweep has reserved and not drawn; what its ledger has drawn is charged before.

        Raises:
            AccountError, RecordError: the store cannot be written to; it can be settled later.
        """
        self.catch_up()
        self._account.settle(self._wanted.sweep, self._ledger)
        self._receipt.seen(self._account).write(self._folder)


def reserve_account(
    plan: SweepPlan,
    data: Dataset,
    folder: SweepFolder,
    *,
    title: str | None = None,
    spender: str | None = None,
    explain: Explain | None = None,
) -> AccountCharges | None:
    """Reserve everything that a sweep plans, and charge what its ledger has drawn and its account does not know.

    A sweep that resumes, or for which a service has reserved, finds its own reservation. ``None`` where it names no
    account. ``title`` is that by which people know the sweep, by default the name of its folder; ``spender`` is whose
    share it takes from, by default that of the user of this machine. ``explain`` is called with account and reservation
    where that is refused, and may raise an error that says what would fit.

    Raises:
        AccountError: the account has no room for it, is another one than before, or has lost what this sweep saw of it.
        RecordError: the store or the folder cannot be read or written.
    """
    if plan.account is None:
        return None
    account = Account(plan.account.address)
    receipt = make_receipt(folder.path, account)
    title, spender = title or folder.path.name, user_of_machine() if spender is None else spender
    wanted = make_reservation(plan, data, account, sweep=receipt.sweep, title=title, spender=spender)
    try:
        account.reserve(wanted, folder.ledger)
    except AccountError:
        if explain is not None:
            explain(account, wanted)
        raise
    receipt = receipt.seen(account)
    receipt.write(folder.path)
    charges = AccountCharges(account, wanted, receipt, folder.path, folder.ledger)
    charges.catch_up()
    return charges


def withdraw(folder: SweepFolder, cause: AccountError | RecordError) -> NoReturn:
    """Give back what a sweep that could not begin has reserved, remove its folder, and raise why it could not.

    Where it cannot be given back now the folder stays, whose receipt alone can give it back.
    """
    try:
        receipt = read_receipt(folder.path)
        if receipt is not None:
            account = Account(parse_address(receipt.account))
            if receipt.sweep in account.balance().sweeps:
                account.settle(receipt.sweep, folder.ledger)
    except (AccountError, RecordError):
        remedy = f"{folder.path} is kept: what it has reserved is given back by `sweeper account settle {folder.path}`"
        raise type(cause)(f"{cause}; {remedy}") from cause
    shutil.rmtree(folder.path, ignore_errors=True)
    raise cause


def check_account(folder: SweepFolder) -> None:
    """Refuse to give up a selection whose account cannot be charged, before anything says that it is given up.

    Raises:
        AccountError, RecordError: as `charge_candidates`.
    """
    receipt = read_receipt(folder.path)
    if receipt is not None:
        receipt.check_against(Account(parse_address(receipt.account)))


def charge_candidates(folder: SweepFolder) -> None:
    """Charge all candidates of a private selection of which a condition broke, before any of them is shown.

    Its data need not be at hand. Nothing is charged where the selection spends no account.

    Raises:
        AccountError: the account has no room for them, of which no number is told: how many they are is secret until it
            has paid; or it has lost what this selection saw of it.
        RecordError: the store or the folder cannot be read or written.
    """
    receipt, ledger = read_receipt(folder.path), Ledger(folder.ledger)
    if receipt is None or ledger.selection is None or not any(entry.drawn for entry in ledger.entries()):
        return
    account = Account(parse_address(receipt.account))
    receipt.check_against(account)
    wanted = account.reservation_of(receipt.sweep)
    charge_draw(account, wanted, draw_of_selection(ledger.selection), folder.ledger)
    try:
        charge_draw(account, wanted, draw_of_candidates(ledger, ledger.selection), folder.ledger)
    except AccountError:
        raise AccountError(
            f"Expected room for all of it in {receipt.account}, which has less left, or has ended; how much it lacks "
            f"would tell how many were trained; see what is left with {program()} account show {receipt.account}, and "
            "ask its owner to raise it"
        ) from None
    receipt.seen(account).write(folder.path)


def note_winner(hidden: SweepFolder, winner: SweepFolder) -> None:
    """Tell the account of a private selection which ledger is shown, before its winner is.

    From then on no older state of the hidden folder goes on, which would draw another winner for the same charge.

    Raises:
        AccountError: the account has lost what this selection saw of it.
        RecordError: the store or a folder cannot be read or written; nothing may be shown then.
    """
    receipt = read_receipt(hidden.path)
    if receipt is None:
        return
    account = Account(parse_address(receipt.account))
    receipt.check_against(account)
    account.charge(account.reservation_of(receipt.sweep), WINNER, {}, winner.ledger)
    receipt.seen(account).write(winner.path)


def give_back(folder: SweepFolder) -> None:
    """Settle a private selection of which no candidate has drawn anything, before its folder is removed.

    Raises:
        AccountError, RecordError: as for `charge_candidates`.
    """
    receipt = read_receipt(folder.path)
    if receipt is None:
        return
    account = Account(parse_address(receipt.account))
    receipt.check_against(account)
    if receipt.sweep in account.balance().sweeps:
        account.settle(receipt.sweep, folder.ledger, NOTHING_YET)
