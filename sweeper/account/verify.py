"""Whether an account is what was written: its chain, its arithmetic, and the ledgers of its sweeps."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweeper.account.account import Account, charge_draw
from sweeper.account.balance import Balance
from sweeper.account.cost import NOTHING, total
from sweeper.account.draws import Draw, read_draws
from sweeper.account.entries import Costs
from sweeper.account.positions import begins_with
from sweeper.account.receipts import RECEIPT_NAME, follow_account, read_receipt
from sweeper.account.store import is_gone
from sweeper.errors import AccountError, SweeperError
from sweeper.specification.addresses import AccountAddress, parse_address
from sweeper.store.lock import undriven
from sweeper.store.sweep_folder import is_secret

LEDGER_NAME = "ledger.jsonl"
_ROUNDING = 0.999  # libraries of another version may differ in their last digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a look at an account found.

    Attributes:
        entries: in its chain.
        folders: of sweeps that were compared with it.
        findings: one sentence for each thing that is not as it was written; none if all is well.
        unsettled: titles of sweeps that hold what they have not drawn.
    """

    entries: int
    folders: int
    findings: tuple[str, ...]
    unsettled: tuple[str, ...] = ()


def verify_account(address: AccountAddress, folders: Iterable[Path] = ()) -> Verification:
    """Replay an account from its first entry, and compare it with the ledgers of sweeps.

    Args:
        address: of the account.
        folders: of sweeps, or what deletion has kept of them; those that spend other accounts are left out.

    Raises:
        RecordError: there is no such store.

    Guarantees:
        A byte that was changed in any entry is found, and so is an entry that is missing. Who may write the store can
        write a whole new chain; that is found if the folder of a sweep is given that saw the old one.
    """
    try:
        account = Account(address)
    except SweeperError as error:
        return Verification(entries=0, folders=0, findings=(str(error),))
    found: list[str] = []
    compared = 0
    for folder in folders:
        try:
            own = list(_compare(account, folder))
        except SweeperError as error:
            own = [f"{folder}: {error}"]
        found += filter(None, own)
        compared += bool(own)
    balance = account.balance()
    unsettled = tuple(sweep.title for sweep in balance.sweeps.values() if sweep.is_open and sweep.undrawn)
    return Verification(entries=account.head.number, folders=compared, findings=tuple(found), unsettled=unsettled)


def settle_folder(folder: Path, moved_to: AccountAddress | None = None) -> AccountAddress:
    """Give back what a sweep has reserved and never drew, which no driver will go on with; return the account.

    What its ledger has drawn and the account does not know, as after a kill between the two, is charged before.
    ``folder`` is that of the sweep, or what deletion has kept of it; its data need not be at hand. ``moved_to`` is
    where the account is now, if its store was moved.

    Raises:
        AccountError: it spends no account, that is not where it was, or the account has no room for what it has drawn.
        RecordError: a process drives it, or the store or the folder cannot be read or written.
    """
    receipt = read_receipt(folder)
    if receipt is None:
        raise AccountError(f"Expected the folder of a sweep that spends an account, got {folder}")
    if is_secret(folder):
        raise AccountError(
            f"Expected a private selection that has ended, got {folder}, which waits; resume it, or give it up with "
            "sweeper resume --give-up"
        )
    address = moved_to or parse_address(receipt.account)
    if moved_to is None and address.path is not None and is_gone(address.path):
        raise AccountError(
            f"Expected the store of accounts at {address.store}, got none; say where it is "
            "(--account), or leave a link to it there"
        )
    account = Account(address)
    with undriven(folder):
        receipt = follow_account(receipt, account, folder)
        sweep = account.balance().sweeps.get(receipt.sweep)
        draws = read_draws(folder / LEDGER_NAME)
        if sweep is None and draws:
            raise AccountError(
                f"Expected draws of a sweep that has reserved from account {account.address.name!r}, got "
                f"{_listed(draws)} of {folder}, which has not; resume the sweep, which reserves"
            )
        if sweep is not None:
            for what in draws.keys() - sweep.charged.keys():
                charge_draw(account, account.reservation_of(receipt.sweep), draws[what], folder / LEDGER_NAME)
            account.settle(receipt.sweep, folder / LEDGER_NAME)
            receipt.seen(account).write(folder)
    return account.address


def release_reservation(folder: Path) -> None:
    """Give back what a sweep that will not begin has reserved, if it has; what drew is never given back.

    Raises: as `settle_folder`.
    """
    if (folder / RECEIPT_NAME).exists():
        settle_folder(folder)


def find_folders(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the folders of sweeps with an account among paths and, down to ``spent``, in them."""
    found = [receipt.parent for path in paths for receipt in sorted(path.rglob(RECEIPT_NAME))]
    return tuple(dict.fromkeys(found))


def _compare(account: Account, folder: Path) -> Iterator[str]:
    """Yield what is wrong with the folder of a sweep, and an empty text for one that spends this account."""
    receipt = read_receipt(folder)
    if receipt is None or receipt.account.rpartition("#")[2] != account.address.name:
        return
    if receipt.store != account.store_id and receipt.account != str(account.address.absolute()):
        return  # an account of that name in another store
    yield ""
    receipt.check_against(account)
    sweep, ledger = account.balance().sweeps.get(receipt.sweep), folder / LEDGER_NAME
    drawn = read_draws(ledger)
    if sweep is None:
        if drawn:
            yield f"{folder}: the account has no reservation of it, but its ledger has drawn {_listed(drawn)}"
        return
    if sweep.position is not None and not begins_with(ledger, sweep.position):
        yield f"{folder}: its ledger does not hold what was charged: it is a copy, or was restored from a backup"
    if uncharged := drawn.keys() - sweep.charged.keys():
        yield f"{folder}: drawn and not charged: {_listed(uncharged)}; resume the sweep, or settle it"
    if undrawn := sweep.charged.keys() - drawn.keys():
        yield f"{folder}: charged and not in its ledger: {_listed(undrawn)}; restore the ledger"
    balance = account.balance()
    known = [draw for what, draw in drawn.items() if what in sweep.charged]
    if cheap := [one.what for one in known if _is_too_cheap(one, sweep.charged, balance)]:
        yield f"{folder}: charged less than its ledger says: {_listed(cheap)}; restore the store"


def _is_too_cheap(draw: Draw, charged: Mapping[str, Costs], balance: Balance) -> bool:
    """Whether a release was charged less than it costs on a side that it reads, with what counts for it."""
    names = [draw.what, *([] if draw.beyond is None else [draw.beyond.what])]
    paid = [charged[name] for name in names if name in charged]
    return any(
        total(one.get(side, NOTHING) for one in paid).square < _ROUNDING * cost.square
        for side, cost in draw.alone.costs(*balance.terms).items()
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
