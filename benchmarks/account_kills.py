"""What does kill -9 do to an account? Its sweeps, whose drivers, service, store and MCP servers are killed at random.

    python benchmarks/account_kills.py [--store sqlite|postgresql] [--kills 60] [--sweeps 200] [--jobs 2] [--seed 0]
        [--minutes 60] [--out FOLDER]

Runs sweeps of a few seconds on scikit-learn's breast_cancer, its evaluation rows private: a third by drivers of their
own, the rest submitted to a service by REST, at its door for automatic clients, and through `sweeper mcp`. Killed, at
any moment of their lives, are in turn drivers, the service, the store (PostgreSQL or one of its processes; for SQLite a
process that holds the lock in the middle of a transaction) and `sweeper mcp` while it submits. What was killed is
started again, sweeps are resumed, and clients repeat what was not answered. Every draw of a step's noise is counted in
files that sweeps do not know of. With SQLite, before that, a folder is copied and both go on, the store is restored
from a backup, and the store is full. At the end:

* each training that drew is charged, and no training drew more steps than its ledger and account say;
* what is charged is in the ledgers, and drew, but for as many releases as there were kills;
* all sweeps are settled, what they hold is what they drew, and the chain verifies against all ledgers;
* a submission that was repeated is one sweep;
* no side of the budget is overspent, and of two drivers that want the last of it one wins;
* the copy, the store that was restored and the full one refused in the ways that docs/account.md says.

Prints a table of these checks; exits with 1 if one fails.
"""

import argparse
import contextlib
import datetime
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _account_hosts import (
    AWAY,
    DONE,
    REFUSED,
    Client,
    Database,
    Desk,
    as_child,
    ended,
    has_ended,
    serve_until_killed,
)
from _noise_log import FOLDER, LoggedSource

from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost
from sweeper.account.account import Account
from sweeper.account.blocks import ALL_ROWS
from sweeper.account.cost import rounded_down
from sweeper.account.entries import Side
from sweeper.account.owner import open_account
from sweeper.account.receipts import read_receipt
from sweeper.account.verify import find_folders, settle_folder, verify_account
from sweeper.backend.trainable import CliplessTrial
from sweeper.driver import driver, finished
from sweeper.driver.options import Options
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.errors import AccountError, RecordError, SweeperError
from sweeper.privacy.ledger import Ledger
from sweeper.service.security.tokens import Role, make_token
from sweeper.service.settings import Limits, ServiceSettings
from sweeper.specification.addresses import AccountAddress
from sweeper.specification.spec import Spec
from sweeper.store.manifest import MANIFEST_NAME
from tests.sweeper.conftest import Nobody
from tests.sweeper.in_process import trained_in_process

RELATION, DELTA, DATA = Relation.ADD_OR_REMOVE_ONE, 1e-4, "breast_cancer"
KINDS = ("driver", "service", "store", "mcp")
WAYS = ("driver", "driver", "rest", "door", "stdio")  # how sweeps reach the account
FIRST_SECONDS = 3.0  # within which who is to be killed is; afterwards as long as the last one lived that was not
HOLD_SECONDS = 0.2
AWAY_SECONDS = 2.0  # for which PostgreSQL is away
MOST_AWAY = 20  # ends of one driver for want of its store


def counted(trial: CliplessTrial) -> LoggedSource:
    """Return a source that counts its draws under sweep and trial."""
    folder = Path(os.environ[FOLDER]) / Path(trial._config["folder"]).name
    folder.mkdir(parents=True, exist_ok=True)
    return LoggedSource(folder / str(trial._config["trial"]))


@dataclass
class Running:
    """A process that is watched: the driver of a sweep, or the client that has submitted it."""

    number: int
    dies: float | None = None  # when it is to be killed
    job: str | None = None  # of a service, whose driver it is
    submits: bool = False
    begun: float = field(default_factory=time.monotonic)


@dataclass
class Campaign:
    """One account, its sweeps, and those who are killed.

    Attributes:
        folder: an empty one.
        random: of the moments.
        owed: who is to be killed still.
        sweeps: how many there are to be.
        database: that holds the account, ``None`` for a file.
        killed: how often who was.
        refused: what was refused as it should be.
    """

    folder: Path
    random: random.Random
    owed: deque[str]
    sweeps: int
    database: Database | None = None
    killed: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)
    ways: Counter[str] = field(default_factory=Counter)
    submitted: set[int] = field(default_factory=set)  # sweeps whose client saw them end
    away: Counter[int] = field(default_factory=Counter)  # drivers that ended for want of their store
    full: int = 0  # sweeps that the account had no room for

    def __post_init__(self) -> None:
        file = AccountAddress(str(self.folder / "accounts.db"), "people")
        self.address = file if self.database is None else self.database.address
        self.out, self.noise, self.served = self.folder / "out", self.folder / "noise", self.folder / "out" / "served"
        self.noise.mkdir(parents=True)
        self.served.mkdir(parents=True)
        os.environ[FOLDER] = str(self.noise)
        now = datetime.datetime.now(datetime.UTC)
        open_account(self.address, unit="row", relation=RELATION, epsilon=60.0, delta=DELTA, by="me", at=now)
        CliplessTrial.source = counted
        driver.Tracker = Nobody
        driver.audit_trials_of_front = lambda *_, **__: []
        finished.exporter = lambda _name: lambda *_: None
        self.desk, self.mcp_kills = Desk(self.folder / "desk"), self.folder / "mcp-kills"
        self.mcp_kills.touch()
        self.token = make_token(self.folder / "tokens.json", Role.WRITE, 1, "client")
        self.port = _free_port()
        self.lives = FIRST_SECONDS
        self.doomed: Counter[int] = Counter()  # sweeps whose driver is to be killed
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.running: dict[int, Running] = {}
        self.waiting: list[int] = []
        self.service: int | None = None

    def content(self, number: int) -> dict[str, Any]:
        """Return the spec of a sweep of a second, without its account."""
        return {
            "name": f"s{number}",
            "data": {"name": DATA, "evaluation": "private"},
            "model": {"architecture": "mlp", "width": 8},
            "training": {"epochs": 1, "batch_size": 64, "learning_rate": {"log": [0.02, 0.1]}},
            "privacy": {"sweep_epsilon": self.random.choice([1.0, 2.0]), "delta": DELTA},
            "search": {"trials": 2, "rehearse": False},
        }

    def spec(self, number: int) -> Spec:
        """Return a sweep of a second."""
        content = self.content(number)
        content["privacy"]["account"] = str(self.address)
        return Spec.from_mapping(content)

    def begin(self, number: int) -> int:
        """Start the driver of a new sweep, or of one that was killed."""
        out, spec = self.out / str(number), self.spec(number)

        def drive() -> None:
            with trained_in_process():
                begun = [found.parent for found in out.glob(f"*/{MANIFEST_NAME}")]
                if begun:
                    resume_sweep(begun[0])
                else:
                    run_sweep(spec, Options(out=out))

        return as_child(drive)

    def serve(self) -> None:
        """Start the service."""
        limits = Limits(requests_per_second=0, queued=10**6)
        given = {"out": self.served, "tokens": self.folder / "tokens.json", "port": self.port, "mcp": True}
        settings = ServiceSettings(**given, drivers=2, limits=limits, accounts={DATA: self.address})
        self.service = as_child(lambda: serve_until_killed(settings, self.desk), self.folder / "service.log")

    def run(self, jobs: int, until: float) -> None:
        """Run all sweeps, some at a time, and kill who is to be killed."""
        self.serve()
        number = 0
        while (number < self.sweeps and time.monotonic() < until) or self.waiting or self.running or self.due:
            while sum(one.job is None for one in self.running.values()) < jobs:
                if self.waiting:
                    self.watch(self.begin(again := self.waiting.pop()), Running(again))
                elif number < self.sweeps and time.monotonic() < until:
                    self.begin_new(number)
                    number += 1
                else:
                    break
            self.step()
            time.sleep(0.02)
        if self.service is not None:
            os.kill(self.service, signal.SIGTERM)
            ended(self.service)
        self.killed["mcp"] = self.mcp_kills.stat().st_size

    def begin_new(self, number: int) -> None:
        """Begin a sweep in one of the ways, and choose who is killed meanwhile."""
        way, servers = self.random.choice(WAYS), 0
        for _ in range(int(len(self.owed) / (self.sweeps - number) + self.random.random())):  # as many as on average
            kind = self.owed.popleft()
            moment = time.monotonic() + self.random.uniform(0.0, self.lives)
            if kind == "mcp":
                way, servers = "stdio", servers + 1
            elif kind == "driver":
                self.doomed[number] += 1
            else:
                self.due.append((moment, self.kill_service if kind == "service" else self.kill_store))
        self.ways[way] += 1
        if way == "driver":
            self.watch(self.begin(number), Running(number))
            return
        chance, content = random.Random(self.random.random()), self.content(number)
        client = Client(f"http://127.0.0.1:{self.port}", self.token, content, chance, self.mcp_kills)
        child = as_child(lambda: client.work(way, servers))
        self.running[child] = Running(number, submits=True)

    def watch(self, child: int, driving: Running) -> None:
        """Watch a driver, which dies if it is to."""
        if self.doomed[driving.number]:
            self.doomed[driving.number] -= 1
            driving.dies = time.monotonic() + self.random.uniform(0.0, self.lives)
        self.running[child] = driving

    def step(self) -> None:
        """Start the drivers that the service asks for, kill whose moment has come, and take those who have ended."""
        for job, child, folder in self.desk.take():
            self.watch(child, Running(int(folder.name.partition("-")[0].removeprefix("s")), job=job))
        for moment, work in list(self.due):
            if time.monotonic() > moment:
                self.due.remove((moment, work))
                work()
        if self.service is not None and has_ended(self.service):  # its store was away when it started
            code = ended(self.service)
            if code != AWAY or self.database is None:
                raise SystemExit(f"the service ended with {code}")
            self.serve()
        for child, one in list(self.running.items()):
            if one.dies is not None and time.monotonic() > one.dies and not has_ended(child):
                os.kill(child, signal.SIGKILL)
            if has_ended(child):
                del self.running[child]
                self.take_end(one, ended(child))

    def take_end(self, one: Running, code: int) -> None:
        """Note how a process ended."""
        if one.job is not None:
            self.desk.finish(one.job)
        if code == -signal.SIGKILL:
            self.killed["driver"] += 1
        elif one.dies is not None:  # it ended before its moment
            self.owed.append("driver")
        elif code == DONE and not one.submits:
            self.lives = time.monotonic() - one.begun
        if code == AWAY and self.database is not None:
            self.away[one.number] += 1
        if one.submits:
            if code not in (DONE, REFUSED):
                raise SystemExit(f"the client of sweep {one.number} ended with {code}")
            self.submitted |= {one.number} if code == DONE else set()
        elif one.job is None and code in (-signal.SIGKILL, AWAY) and self.away[one.number] <= MOST_AWAY:
            self.waiting.append(one.number)
        elif one.job is None and code not in (DONE, REFUSED):
            raise SystemExit(f"the driver of sweep {one.number} ended with {code}")
        self.full += code == REFUSED
        who = "client" if one.submits else "driver" if one.job is None else "driver of the service"
        took = time.monotonic() - one.begun
        print(f"sweep {one.number}, {who}: {code} after {took:.1f} s; killed {dict(self.killed)}", flush=True)

    def kill_service(self) -> None:
        """Kill the service, which is started again; its drivers go on."""
        if self.service is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.service, signal.SIGKILL)
            self.killed["service"] += ended(self.service) == -signal.SIGKILL
        self.serve()

    def kill_store(self) -> None:
        """Kill PostgreSQL, which is started again after a while, or who holds the lock of the file."""
        if self.database is None:
            self.kill_holder()
        else:
            self.database.kill(self.random)
            moment = time.monotonic() + self.random.uniform(0.0, AWAY_SECONDS)
            self.due.append((moment, self.database.start))
        self.killed["store"] += 1

    def kill_holder(self) -> None:
        """Kill a process in the middle of a transaction that has written."""
        ready, told = os.pipe()

        def hold() -> None:
            account = Account(self.address)
            with account._chain._store.write() as transaction:
                transaction._connection.exec_driver_sql("UPDATE account_heads SET digest = 'gone'")
                os.write(told, b".")
                time.sleep(60.0)

        child = as_child(hold)
        os.read(ready, 1)
        time.sleep(self.random.uniform(0.0, HOLD_SECONDS))
        os.kill(child, signal.SIGKILL)
        ended(child)
        os.close(ready)
        os.close(told)

    def interfere(self) -> None:
        """Copy the folder of a sweep that was killed, restore the store, and fill it."""
        child, number = self.begin(9001), 9001
        while not self._has_drawn(number):
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        ended(child)
        (folder,) = [found.parent for found in (self.out / str(number)).glob(f"*/{MANIFEST_NAME}")]
        copy, backup = self.folder / "copy" / folder.name, self.folder / "backup.db"
        shutil.copytree(folder, copy)
        shutil.copyfile(self.address.store, backup)
        self.refused["the original of a copy"] = "" if ended(self.begin(number)) == DONE else "was refused"
        self.refused["a copy of a folder"] = self._refusal(lambda: resume_sweep(copy))
        newest = self.folder / "newest.db"
        shutil.copyfile(self.address.store, newest)
        shutil.copyfile(backup, self.address.store)
        self.refused["a store from a backup"] = self._refusal(lambda: resume_sweep(folder))
        shutil.copyfile(newest, self.address.store)
        shutil.rmtree(copy)
        self.refused["a full store"] = self._refusal(self._run_when_full)
        for stopped in find_folders([self.folder / "full"]):  # there is room again
            self.refused["a sweep that met a full store"] = self._outcome(stopped)
        print(self.refused, flush=True)

    def _outcome(self, folder: Path) -> str:
        """Return an empty text if a sweep goes on to its end."""

        def go_on() -> None:
            with trained_in_process():
                resume_sweep(folder)

        return "" if ended(as_child(go_on)) == DONE else "cannot go on"

    def _has_drawn(self, number: int) -> bool:
        names = [found.name for found in (self.out / str(number)).glob("*")]
        return any(one.stat().st_size for name in names for one in (self.noise / name).glob("*"))

    def _run_when_full(self) -> None:
        limit = Path(self.address.store).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for number in range(50):
            run_sweep(self.spec(10_000 + number), Options(out=self.folder / "full"))

    def _refusal(self, work: Callable[[], object]) -> str:
        """Return an empty text if some work is refused in a sentence, in a process of its own."""

        def try_it() -> None:
            with trained_in_process():
                try:
                    work()
                except (AccountError, RecordError):
                    return
            raise SystemExit("was let through")

        return "" if ended(as_child(try_it)) == DONE else "was let through"

    def race(self) -> list[int]:
        """Let two processes want the last of the account at once, and say how both ended."""
        account = Account(self.address)
        wanted = account.reservation_of(next(iter(account.balance().sweeps)))
        left = account.balance().left((ALL_ROWS, Side.TRAINING))
        most = {Side.TRAINING: rounded_down(GaussianCost(0.6 * left.square, 0.6 * left.slack))}
        ready, go = os.pipe()

        def want(name: str) -> None:
            own = Account(self.address)
            os.close(go)
            os.read(ready, 1)  # until nobody holds the other end
            own.reserve(replace(wanted, sweep=name, title=name, costs=most))

        children = [as_child(lambda name=name: want(name)) for name in ("one", "other")]
        os.close(ready)
        os.close(go)
        found = sorted(map(ended, children))
        for name in ("one", "other"):
            with contextlib.suppress(RecordError):
                Account(self.address).settle(name, self.folder / "none")
        return found

    def checks(self) -> dict[str, str]:
        """Return what does not hold, empty texts for what does."""
        folders = find_folders([self.out, self.folder / "full"])
        for folder in folders:
            with contextlib.suppress(SweeperError):
                settle_folder(folder)
        found = verify_account(self.address, folders)
        balance = Account(self.address).balance()
        places = {place: balance.taken(place).square / balance.budget.square for place in balance.places()}
        return {
            "each training that drew is charged, for as many steps or more": self._check_draws(folders),
            "what is charged drew, but for what kills cut off": self._check_charges(folders),
            "the chain verifies against all ledgers": "; ".join(found.findings[:3]),
            "all is settled": ", ".join(found.unsettled),
            "a submission that was repeated is one sweep": self._check_submissions(),
            "nothing is overspent": "" if max(places.values()) <= 1.0 else f"{places}",
            **{f"{what} does what the page says": wrong for what, wrong in self.refused.items()},
        }

    def _check_submissions(self) -> str:
        counts = {number: len(list(self.served.glob(f"s{number}-*"))) for number in self.submitted}
        return ", ".join(f"s{number} is {count} sweeps" for number, count in counts.items() if count != 1)

    def _check_draws(self, folders: tuple[Path, ...]) -> str:
        known = {folder.name: folder for folder in folders}
        balance = Account(self.address).balance()
        for path in (one for one in self.noise.glob("*/*") if one.stat().st_size):
            if path.parent.name not in known:
                return f"{path.parent.name} drew and has no folder"
            folder = known[path.parent.name]
            charged = balance.sweeps[read_receipt(folder).sweep].charged
            entries = [one for one in Ledger(folder / "ledger.jsonl").entries() if one.trial == path.name and one.drawn]
            if not all(f"{one.trial}/{one.attempt}" in charged for one in entries):
                return f"{path} drew and is not charged"
            most = sum(one.event.steps + (0 if one.scores is None else one.scores.event.steps) for one in entries)
            if most < path.stat().st_size:
                return f"{path} drew {path.stat().st_size} times, {most} are charged"
        return ""

    def _check_charges(self, folders: tuple[Path, ...]) -> str:
        balance, never = Account(self.address).balance(), 0
        for folder in folders:
            if folder.parent.name == "full":  # the limit on its files cut its log of draws off, too
                continue
            sweep = balance.sweeps.get(read_receipt(folder).sweep)
            for what in () if sweep is None else sweep.charged:
                trial = what.partition("/")[0]
                drawn = self.noise / folder.name / trial
                never += trial != "test" and not (drawn.is_file() and drawn.stat().st_size)
        return "" if never <= self.killed["driver"] else f"{never} that never drew"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def main() -> None:
    """Run the campaign and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no sweep begins")
    parser.add_argument("--out", type=Path, help="an empty folder; a temporary one by default")
    options = parser.parse_args()
    owed = deque(KINDS[number % len(KINDS)] for number in range(options.kills))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        Path(temporary).chmod(0o755)  # where PostgreSQL runs as another user
        database = None if options.store == "sqlite" else Database(Path(temporary) / "database")
        try:
            sys.exit(report(Campaign(folder, random.Random(options.seed), owed, options.sweeps, database), options))
        finally:
            if database is not None:
                database.close()


def report(campaign: Campaign, options: argparse.Namespace) -> bool:
    """Run a campaign, print the table, and return whether something does not hold."""
    begun = time.monotonic()
    if campaign.database is None:
        campaign.interfere()
    campaign.run(options.jobs, begun + 60.0 * options.minutes)
    raced = campaign.race()
    found = campaign.checks() | {"of two that want the last one wins": "" if raced == [DONE, REFUSED] else f"{raced}"}
    account = Account(campaign.address)
    drawn = sum(path.stat().st_size for path in campaign.noise.glob("*/*"))
    print(f"killed: {dict(campaign.killed)}, {campaign.killed.total()} in all; sweeps by way: {dict(campaign.ways)}")
    print(f"{len(account.balance().sweeps)} sweeps, {campaign.full} had no room; the store was away for")
    print(f"{campaign.away.total()} drivers; {account.head.number} entries, {drawn} draws, ", end="")
    print(f"{time.monotonic() - begun:.0f} s\n\n| | |\n|---|---|")
    for what, wrong in found.items():
        print(f"| {what} | {wrong or 'holds'} |")
    return any(found.values())


if __name__ == "__main__":
    main()
