"""A process that opens an account, and children of it that are killed between two statements, or race for the last.

Started by ``test_store.py``; prints one JSON object.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from sweeper.account import store as store_module
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.cost import rounded_up
from sweeper.account.entries import Side
from sweeper.errors import AccountError, SweeperError
from sweeper.specification.addresses import AccountAddress, parse_address

from .accounts import DAY, ONE, begin_quickly, costs, make, wants, write_rows

WON, REFUSED, BROKEN, KILLED = 0, 3, 4, 9


def reach(address: AccountAddress) -> Account:
    """Return the account at an address."""
    return Account(address, clock=lambda: DAY)


def spend(account: Account, ledger: Path) -> None:
    """Reserve, charge and settle a sweep, as its driver does when it begins and when it is resumed."""
    account.reserve(wants("s"))
    if not ledger.exists():
        write_rows(ledger, "draw")
    draw = {side: rounded_up(cost) for side, cost in costs(ONE / 2, 1e-9).items()}
    account.charge(wants("s"), "t1/1", draw, ledger)
    account.settle("s", ledger)


def kill_before(account: Account, number: int) -> None:
    """End this process before its n-th statement from now on; a commit counts as one."""
    left = itertools.count(number, -1)

    def count(*_: object) -> None:
        if next(left) <= 1:
            os._exit(KILLED)

    engine = account._chain._store.engine
    sa.event.listen(engine, "before_cursor_execute", count)
    sa.event.listen(engine, "commit", count)


def in_child(work: Callable[[], None]) -> int:
    """Return how a child of this process ended that does some work."""
    child = os.fork()
    if child == 0:
        code = BROKEN
        with contextlib.suppress(SweeperError):
            try:
                work()
                code = WON
            except AccountError:
                code = REFUSED
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_often(folder: Path, step: int) -> list[dict[str, object]]:
    """Kill a sweep before every so-manieth of its statements, go on, and say how the account stands each time."""
    found = []
    for number in itertools.count(1, step):
        own = folder / f"kill{number}"
        shutil.copytree(folder / "template", own)
        address, ledger = parse_address(f"{own}/accounts.db#clinic"), own / "ledger.jsonl"

        def killed(address: AccountAddress = address, ledger: Path = ledger, number: int = number) -> None:
            account = reach(address)
            kill_before(account, number)
            spend(account, ledger)

        ended = in_child(killed)
        if ended == WON:
            return found
        account = reach(address)
        between = account.balance().sweeps.get("s")
        is_early = between is not None and bool(between.charged) and not ledger.exists()
        spend(account, ledger)
        sweep = reach(address).balance().sweeps["s"]
        is_even = sweep.held == sweep.drawn and list(sweep.charged) == ["t1/1"]
        found.append({"ended": ended, "charged before it drew": is_early, "holds what it drew": is_even})
    return found


def kill_holder(address: AccountAddress) -> bool:
    """Kill a process that has written and holds the store, and say whether nothing of it is left and others go on."""
    before = reach(address).head
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        with reach(address)._chain._store.write() as transaction:
            transaction._connection.execute(sa.text("UPDATE account_heads SET digest = 'gone'"))
            os.write(told, b".")
            signal.pause()
    os.read(ready, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    account = reach(address)
    unchanged = account.head == before
    account.reserve(wants("behind a killed holder", costs(1e-3)))
    return unchanged and account.head.number == before.number + 1


def race(address: AccountAddress, rounds: int) -> list[list[int]]:
    """Let two processes reserve the last of an account at the same moment, and say how both ended each time."""
    found = []
    for number in range(rounds):
        account = reach(address)
        left = account.balance().left((ALL_ROWS, Side.TRAINING)).square
        ready, go = os.pipe()
        children = []
        for who in "ab":
            child = os.fork()
            if child == 0:
                own, code = reach(address), BROKEN
                os.close(go)
                os.read(ready, 1)  # until nobody holds the other end
                with contextlib.suppress(SweeperError):
                    try:
                        own.reserve(wants(f"{number}{who}", costs(0.6 * left, 1e-9)))
                        code = WON
                    except AccountError:
                        code = REFUSED
                os._exit(code)
            children.append(child)
        os.close(ready)
        os.close(go)
        found.append(sorted(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
    return found


def main() -> None:
    """Print how the account stood after every kill and every race."""
    store_module._begin_by_hand = begin_quickly  # a killed process loses nothing that its system has
    folder, step = Path(sys.argv[1]), int(sys.argv[2])
    (folder / "template").mkdir()
    make(parse_address(f"{folder}/template/accounts.db#clinic")).reserve(wants("first", costs(1e-3)))
    (folder / "race").mkdir()
    racing = parse_address(f"{folder}/race/accounts.db#clinic")
    make(racing).reserve(wants("first", costs(1e-3)))
    found = {"kills": kill_often(folder, step), "races": race(racing, 2), "holder": kill_holder(racing)}
    print(json.dumps(found))
