"""``account.json`` in the folder of a sweep: which account it spends, under which id, and what it last saw of it.

The id is on the disk before anything is reserved under it, so a sweep that is killed and resumed finds its own
reservation. The entry that it saw last shows a store that was restored from a backup: it no longer has that entry.
"""

import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sweeper.account.store import AccountStore, is_gone
from sweeper.adapters import dump, read
from sweeper.errors import AccountError
from sweeper.specification.addresses import AccountAddress, parse_address
from sweeper.store.jsonl import read_object, replace_file, to_text

if TYPE_CHECKING:
    from sweeper.account.account import Account

RECEIPT_NAME = "account.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the folder of a sweep knows of its account.

    Attributes:
        account: its address.
        store: the id of the store, which a copy of it has too.
        sweep: the id of the sweep.
        number: of the last entry that it saw, and ``digest`` its hash; 0 and empty before it has reserved.
    """

    account: str
    store: str
    sweep: str
    number: int = 0
    digest: str = ""

    def write(self, folder: Path) -> None:
        """Put the receipt into the folder of the sweep.

        Raises:
            RecordError: it cannot be written.
        """
        replace_file(folder / RECEIPT_NAME, to_text(dump(self), indent=1) + "\n")

    def check_against(self, account: "Account") -> None:
        """Refuse an account that is another one, or has lost what this sweep saw of it.

        Raises:
            AccountError: it is, or has.
            RecordError: the store cannot be read.
        """
        if self.store != account.store_id:
            raise AccountError(
                f"Expected the store of accounts at {self.account}, from which the sweep has reserved, got another one "
                f"at {account.address.store}; bring that one back"
            )
        if self.number and account.digest_at(self.number) != self.digest:
            raise AccountError(
                f"Expected entry {self.number} of account {self.account} as this sweep saw it, got none or another: "
                "the store was restored from a backup and has lost what was spent since; bring the newest one back, or "
                "close the account"
            )

    def seen(self, account: "Account") -> "Receipt":
        """Return the receipt after the last entry that an account has read or written."""
        return replace(self, number=account.head.number, digest=account.head.digest)


def read_receipt(folder: Path) -> Receipt | None:
    """Return the receipt in the folder of a sweep, ``None`` where it spends no account.

    Raises:
        RecordError: the file cannot be read.
    """
    path = folder / RECEIPT_NAME
    if not path.exists():
        return None
    receipt = read(Receipt, read_object(path), f"in {path}", "restore the file")
    parse_address(receipt.account)
    return receipt


def make_receipt(folder: Path, account: "Account") -> Receipt:
    """Return the receipt of a folder, which is written with a new id where there is none.

    Raises:
        AccountError: the sweep spends another account.
        RecordError: the file cannot be read or written.
    """
    known = read_receipt(folder)
    if known is not None:
        return follow_account(known, account, folder)
    made = Receipt(account=str(account.address.absolute()), store=account.store_id, sweep=secrets.token_hex(16))
    made.write(folder)
    return made


def follow_account(known: Receipt, account: "Account", folder: Path) -> Receipt:
    """Return the receipt in a folder, at the address to which its store was moved since, if it was.

    Raises:
        AccountError: it is another account, or its store has lost what the sweep saw of it, or is still at its place.
        RecordError: the store cannot be read, or the file cannot be written.
    """
    here = account.address.absolute()
    if known.account != str(here) and not _is_moved(parse_address(known.account), here):
        raise AccountError(f"Expected account {known.account} as before, got {here} (privacy.account)")
    known.check_against(account)
    if known.account != str(here):
        known = replace(known, account=str(here))
        known.write(folder)
    return known


def _is_moved(old: AccountAddress, new: AccountAddress) -> bool:
    """Whether a store may be that of another address: a copy, beside which the old one is, is not."""
    if old.name != new.name:
        return False
    if old.path is None and new.path is None:
        return AccountStore(new).is_reached_at(old) is not False
    if old.path is None or new.path is None or not old.path.is_absolute():
        return False
    return is_gone(old.path) or old.path.samefile(new.path)
