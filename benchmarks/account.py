"""What an account costs a driver: reserve and settle beside eight other clients, and opening one of 10,000 entries.

    python benchmarks/account.py [FOLDER] [--pairs 50] [--pause 1.0] [--entries 10000] [--picture FILE]

FOLDER lies on the disk that is measured. Each client reserves and settles, then pauses, as drivers do between sweeps.
Each of both waits for SYNCHRONISED writes one after the other: the disk's own time is measured beside, between pauses.
No other durable mode of SQLite saves one of them (strace, writes of 20 transactions): PERSIST, TRUNCATE with FULL and
DELETE with EXTRA 100, a kept connection too; DELETE with FULL 80, whose commit may be undone by a loss of power; WAL
100, for the last connection that closes copies it back, and 22 on one that stays, which a driver that forks cannot
have. So a pair takes less than 10 ms where a write takes less than 1 ms, and not on a disk of 4 ms.
The page is opened in a browser, first of a service that has just started, then again; `--picture` keeps what it shows.
"""

import argparse
import datetime
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from live_page import CHROMIUM, serving
from playwright.sync_api import sync_playwright

from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.entries import Side
from sweeper.account.owner import open_account
from sweeper.account.rules import Reservation
from sweeper.account.summary import summarise
from sweeper.specification.addresses import AccountAddress

CLIENTS = 8
SYNCHRONISED = 5  # of a transaction: journal, its folder, its header, the store, the journal again (strace)
RELATION = Relation.ADD_OR_REMOVE_ONE


def wants(sweep: str) -> Reservation:
    """Return what a small sweep asks."""
    costs = {Side.TRAINING: GaussianCost(1e-6, 1e-13)}
    given = {"unit": "row", "relation": RELATION, "split": "{}", "blocks": {ALL_ROWS: "rows"}}
    return Reservation(sweep=sweep, title=sweep, spender="me", costs=costs, **given)


def spend(address: AccountAddress, name: str, pairs: int, pause: float, times: Any) -> None:
    """Reserve and settle so many sweeps, and tell how long each pair took in seconds."""
    account, ledger, took = Account(address), Path(address.store).with_name(f"{name}.jsonl"), []
    ledger.write_text("{}\n", encoding="utf-8")
    for number in range(pairs):
        begun = time.perf_counter()
        account.reserve(wants(f"{name}-{number}"))
        account.settle(f"{name}-{number}", ledger)
        took.append(time.perf_counter() - begun)
        time.sleep(pause)
    times.put(took)


def disk_milliseconds(folder: str, count: int = 40) -> float:
    """Return the median time of one synchronised write of a page."""
    path, took = f"{folder}/page", []
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(40_960))
        for number in range(count):
            begun = time.perf_counter()
            os.pwrite(file.fileno(), os.urandom(4096), 4096 * (number % 10))
            os.fdatasync(file.fileno())
            took.append(1e3 * (time.perf_counter() - begun))
            time.sleep(0.02)
    return statistics.median(took)


def main() -> None:
    """Print a line for the disk, for one client, for all, and for a long account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--pause", type=float, default=1.0)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        address = AccountAddress(f"{folder}/accounts.db", "clinic")
        now = datetime.datetime.now(datetime.UTC)
        open_account(address, unit="row", relation=RELATION, epsilon=6.8, delta=1e-5, by="me", at=now)
        disk = disk_milliseconds(folder)
        print(f"the disk: {disk:.2f} ms for a synchronised write, {2 * SYNCHRONISED * disk:.1f} ms for those of a pair")
        for clients in (1, CLIENTS + 1):
            times = multiprocessing.Queue()
            each = [(address, f"{clients}-{k}", given.pairs, given.pause, times) for k in range(clients)]
            processes = [multiprocessing.Process(target=spend, args=one) for one in each]
            for process in processes:
                process.start()
            took = sorted(1e3 * one for _ in processes for one in times.get())
            last = took[int(0.9 * len(took))]
            print(f"{clients} clients: reserve and settle {statistics.median(took):.1f} ms, nine in ten {last:.1f} ms")
        account, ledger = Account(address), Path(folder) / "more.jsonl"
        while account.head.number < given.entries:
            number = account.head.number
            account.reserve(wants(f"more-{number}"))
            account.settle(f"more-{number}", ledger)
        begun = time.perf_counter()
        count = len(summarise(Account(address).balance()).sweeps)
        seconds = time.perf_counter() - begun
        print(f"an account of {given.entries} entries, {count} sweeps: looked at in {seconds:.2f} s")
        open_page(Path(folder), address, given.picture)


def open_page(folder: Path, address: AccountAddress, picture: Path | None) -> None:
    """Open the page of an account in a browser twice, and print until when its entries and its verdict were shown."""
    with serving(folder / "out", accounts={"digits": address}) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(**CHROMIUM)
        for visit in ("first", "second"):
            page = browser.new_page(viewport={"width": 1280, "height": 1400})
            begun = time.perf_counter()
            page.goto(f"{url}/?account={address.name}", wait_until="commit")
            page.wait_for_selector("#part-account h1")
            page.wait_for_selector("#part-entries tbody tr")
            shown = time.perf_counter() - begun
            page.wait_for_selector("#part-verdict p")
            print(f"{visit} visit of its page: entries {shown:.2f} s, verified {time.perf_counter() - begun:.2f} s")
            if picture is not None:
                page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
