"""What the owner of the data does with an account: open it, raise it, give shares, close it.

Each is an entry that stays: nothing of an account is ever changed silently.
"""

import datetime
import getpass
from collections.abc import Sequence

from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost
from clipless.spelling import did_you_mean
from sweeper.account.chain import AccountChain
from sweeper.account.cost import budget_of, raised_budget
from sweeper.account.entries import Closed, Opened, Raised, Share, Shared, first_digest
from sweeper.account.store import AccountStore, Head
from sweeper.errors import AccountError
from sweeper.specification.addresses import AccountAddress


def open_account(
    address: AccountAddress,
    *,
    unit: str,
    relation: Relation,
    epsilon: float,
    delta: float,
    by: str,
    at: datetime.datetime,
    shares: Sequence[Share] = (),
    until: datetime.date | None = None,
    salt: str | None = None,
    column: str | None = None,
) -> None:
    """Open an account, in a store that is made if need be.

    Args:
        address: of the store, and the name of the account.
        unit: the privacy unit, ``"row"`` or the column that identifies it.
        relation: which data sets are neighbours.
        epsilon: of everything that is ever released from each block, at delta.
        delta: the probability that the guarantee may fail with.
        by: who opens it.
        at: the time.
        shares: of spenders and groups; without any, everybody may spend everything.
        until: the last day on which anything may be reserved.
        salt: of the split by hash that keeps a row on its side; that of the first sweep where none is given.
        column: that declares the split, in place of a salt.

    Raises:
        AccountError: the store has an account of that name, a share is not one, or both a salt and a column.
        clipless.errors.AccountingError: not epsilon > 0 and 0 < delta < 1.
        RecordError: the store cannot be made or written.
    """
    _check_shares(shares)
    if salt is not None and column is not None:
        raise AccountError(f"Expected a salt or a column of the split, got both, {salt!r} and {column!r}")
    budget = budget_of(epsilon, delta)
    opened = Opened(
        name=address.name,
        unit=unit,
        relation=relation,
        epsilon=epsilon,
        delta=delta,
        square=budget.square,
        slack=budget.slack,
        shares=tuple(shares),
        until=None if until is None else until.isoformat(),
        salt=salt,
        column=column,
        by=by,
        at=time_in_text(at),
    )
    with AccountStore.create(address).write() as transaction:
        if transaction.head(address.name) is not None:
            raise AccountError(f"Expected a new name in {address.store}, got {address.name!r}, which is there")
        transaction.append(address.name, Head(0, first_digest(transaction.id, address.name)), [opened])


def raise_account(
    address: AccountAddress, epsilon: float, delta: float, *, because: str, by: str, at: datetime.datetime
) -> None:
    """Raise the budget of every block, which is a new statement to the people in the data and stays on record.

    Raises:
        RecordError: a smaller budget, or the store cannot be written to.
        clipless.errors.AccountingError: not epsilon > 0 and 0 < delta < 1.
    """
    when = time_in_text(at)
    with AccountChain(address).change() as (_, balance, entries):
        new = raised_budget(epsilon, delta, GaussianCost(balance.opened.square, balance.opened.slack))
        entries.append(
            Raised(epsilon=epsilon, delta=delta, square=new.square, slack=new.slack, because=because, by=by, at=when)
        )


def give_shares(address: AccountAddress, shares: Sequence[Share], *, by: str, at: datetime.datetime) -> None:
    """Give spenders and groups these shares from now on, in place of those before; what is taken stays taken.

    Raises:
        AccountError: a share is not one.
        RecordError: the store cannot be written to.
    """
    _check_shares(shares)
    with AccountChain(address).change() as (_, _, entries):
        entries.append(Shared(shares=tuple(shares), by=by, at=time_in_text(at)))


def close_account(
    address: AccountAddress, *, block: str | None = None, because: str, by: str, at: datetime.datetime
) -> None:
    """Close a block, or the whole account; sweeps may still draw what they have reserved.

    Raises:
        AccountError: no such block.
        RecordError: the store cannot be written to.
    """
    with AccountChain(address).change() as (_, balance, entries):
        if block is not None and block not in balance.digests:
            known = ", ".join(balance.digests) or "none"
            near = did_you_mean(block, balance.digests, before="; ")
            raise AccountError(f"Expected a block of account {address.name!r} ({known}), got {block!r} (--block){near}")
        entries.append(Closed(block=block, because=because, by=by, at=time_in_text(at)))


def user_of_machine() -> str:
    """Return the user of this machine, whose share a sweep takes from that no service has started.

    Raises:
        AccountError: nobody knows.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise AccountError("Expected a user of this machine, who stands in every entry, got none; set USER") from None


def time_in_text(at: datetime.datetime) -> str:
    """Return a time as entries have it, in UTC."""
    return at.astimezone(datetime.UTC).isoformat(timespec="seconds")


def _check_shares(shares: Sequence[Share]) -> None:
    for share in shares:
        if not (share.name and 0.0 <= share.part <= 1.0):
            raise AccountError(f"Expected a name and a share from 0 to 1, got {share.name!r}={share.part!r} (--share)")
    names = [share.name for share in shares]
    if len(set(names)) < len(names):
        raise AccountError(f"Expected one share for each name, got {', '.join(names)} (--share)")
