"""What does kill -9 do to an account? Its sweeps, whose drivers and whoever holds the store are killed at random.

    python benchmarks/account_kills.py [--kills 60] [--sweeps 200] [--jobs 2] [--seed 0] [--minutes 60] [--out FOLDER]

Runs sweeps of a few seconds on scikit-learn's breast_cancer, its evaluation rows private, and kills drivers at any
moment of their lives, and processes that hold the lock of the store. Killed sweeps are resumed. A driver trains in its
own process, forked from this one: what is killed is what talks to the account. Every draw of a step's noise is counted
in files that sweeps do not know of. In between a folder is copied and both go on, the store is restored from a backup,
and the store is full. At the end:

* each training that drew is charged, and no training drew more steps than its ledger and account say;
* what is charged is in the ledgers, and drew, but for as many releases as there were kills;
* all sweeps are settled, what they hold is what they drew, and the chain verifies against all ledgers;
* no side of the budget is overspent, and of two drivers that want the last of it one wins;
* the copy, the store that was restored and the full one refused in the ways that docs/account.md says.

Prints a table of these checks; exits with 1 if one fails.
"""

import argparse
import contextlib
import datetime
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _noise_log import FOLDER, LoggedSource

from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost
from sweeper.account.account import Account
from sweeper.account.cost import rounded_down
from sweeper.account.entries import Side
from sweeper.account.owner import open_account
from sweeper.account.receipts import read_receipt
from sweeper.account.rules import ALL_ROWS
from sweeper.account.verify import find_folders, settle_folder, verify_account
from sweeper.backend.trainable import CliplessTrial
from sweeper.driver import driver, finished
from sweeper.driver.options import Options
from sweeper.driver.runner import resume_sweep, run_sweep
from sweeper.errors import AccountError, RecordError, SweeperError
from sweeper.privacy.ledger import Ledger
from sweeper.specification.addresses import AccountAddress
from sweeper.specification.spec import Spec
from sweeper.store.manifest import MANIFEST_NAME
from tests.sweeper.conftest import Nobody
from tests.sweeper.in_process import trained_in_process

RELATION, DELTA = Relation.ADD_OR_REMOVE_ONE, 1e-4
DONE, REFUSED, BROKEN = 0, 3, 4
SHARE_KILLED = 0.35  # of drivers, those that were killed before included
LONGEST_SECONDS = 3.0  # after which a driver that is to be killed is
HOLD_SECONDS = 0.2


def counted(trial: CliplessTrial) -> LoggedSource:
    """Return a source that counts its draws under sweep and trial."""
    folder = Path(os.environ[FOLDER]) / Path(trial._config["folder"]).name
    folder.mkdir(parents=True, exist_ok=True)
    return LoggedSource(folder / str(trial._config["trial"]))


def as_child(work: Callable[[], None]) -> int:
    """Fork a process that does some work, and return its id."""
    child = os.fork()
    if child:
        return child
    code = BROKEN
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            work()
        code = DONE
    except AccountError:
        code = REFUSED
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Return how a child ended, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@dataclass
class Campaign:
    """One account, its sweeps, and those who are killed.

    Attributes:
        folder: an empty one.
        random: of the moments.
        killed: how often who was; ``left`` how often somebody is to be.
        refused: what was refused as it should be.
    """

    folder: Path
    random: random.Random
    left: int
    killed: Counter = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)
    full: int = 0  # sweeps that the account had no room for

    def __post_init__(self) -> None:
        self.address = AccountAddress(str(self.folder / "accounts.db"), "people")
        self.out, self.noise = self.folder / "out", self.folder / "noise"
        self.noise.mkdir(parents=True)
        os.environ[FOLDER] = str(self.noise)
        now = datetime.datetime.now(datetime.UTC)
        open_account(self.address, unit="row", relation=RELATION, epsilon=60.0, delta=DELTA, by="me", at=now)
        CliplessTrial.source = counted
        driver.Tracker = Nobody
        driver.audit_trials_of_front = lambda *_, **__: []
        finished.exporter = lambda _name: lambda *_: None

    def spec(self, number: int) -> Spec:
        """Return a sweep of two seconds."""
        return Spec.from_mapping({
            "name": f"s{number}",
            "data": {"name": "breast_cancer", "evaluation": "private"},
            "model": {"architecture": "mlp", "width": 8},
            "training": {"epochs": 2, "batch_size": 64, "learning_rate": {"log": [0.02, 0.1]}},
            "privacy": {"sweep_epsilon": self.random.choice([2.0, 3.0]), "delta": DELTA, "account": str(self.address)},
            "search": {"trials": 2, "rehearse": False},
        })  # fmt: skip

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

    def run(self, sweeps: int, jobs: int, until: float) -> None:
        """Run so many sweeps, some at a time, and kill as many as are left to be killed."""
        waiting, running, number = [], {}, 0
        while number < sweeps or waiting or running:
            over = time.monotonic() > until
            while len(running) < jobs and (waiting or (number < sweeps and not over)):
                mine = waiting.pop() if waiting else number
                number += mine == number
                dies = None
                if self.left and not over and self.random.random() < SHARE_KILLED:
                    self.left -= 1
                    dies = time.monotonic() + self.random.uniform(0.0, LONGEST_SECONDS)
                running[self.begin(mine)] = mine, dies
                if self.random.random() < 0.1 and self.left:
                    self.kill_holder()
            if over and not waiting and not running:
                return
            self.look(running, waiting)
            time.sleep(0.02)

    def look(self, running: dict[int, tuple[int, float | None]], waiting: list[int]) -> None:
        """Kill whose moment has come, and take those who have ended."""
        for child, (number, dies) in list(running.items()):
            if dies is not None and time.monotonic() > dies:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                running[child] = number, None
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            code = ended(child)
            del running[child]
            if code == -signal.SIGKILL:
                self.killed["driver"] += 1
                waiting.append(number)
            elif code == REFUSED:
                self.full += 1
            elif code != DONE:
                raise SystemExit(f"the driver of sweep {number} ended with {code}")
            print(f"sweep {number}: {code}; killed {dict(self.killed)}", flush=True)

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
        self.left -= 1
        self.killed["holder of the store"] += 1

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
            "nothing is overspent": "" if max(places.values()) <= 1.0 else f"{places}",
            **{f"{what} does what the page says": wrong for what, wrong in self.refused.items()},
        }

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


def main() -> None:
    """Run the campaign and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no sweep begins")
    parser.add_argument("--out", type=Path, help="an empty folder; a temporary one by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        campaign = Campaign(options.out or Path(temporary), random.Random(options.seed), options.kills)
        begun = time.monotonic()
        campaign.interfere()
        campaign.run(options.sweeps, options.jobs, begun + 60.0 * options.minutes)
        raced = campaign.race()
        found = campaign.checks() | {
            "of two that want the last one wins": "" if raced == [DONE, REFUSED] else f"{raced}"
        }
        account = Account(campaign.address)
        drawn = sum(path.stat().st_size for path in campaign.noise.glob("*/*"))
        print(f"killed: {dict(campaign.killed)}; {len(account.balance().sweeps)} sweeps, {campaign.full} had no room; ")
        print(f"{account.head.number} entries, {drawn} draws, {time.monotonic() - begun:.0f} s\n\n| | |\n|---|---|")
        for what, wrong in found.items():
            print(f"| {what} | {wrong or 'holds'} |")
        sys.exit(any(found.values()))


if __name__ == "__main__":
    main()
