"""What does the stack survive? Its parts killed, cut off or out of space while it runs a sweep, and what is left of it.

    python benchmarks/stack_faults.py [--trials 6] [--epochs 24] [--only FAULT ...] [--state FOLDER]

Runs the stack of ``docker-compose.yml`` as `make stack` does. For each fault a sweep on scikit-learn's digits is
submitted to the service; once noise is drawn, the fault happens. One that has ended before is given more trials.

* ``worker``, ``head``, ``mlflow``, ``postgres``, ``service``: every process of it is killed at once, as when the
  machine that it runs on loses power; the stack starts it again, as Docker would;
* ``disk``: the volume of artifacts, a small file system, is full until the sweep has ended;
* ``network``: the driver, in a network namespace of its own, is cut off from MLflow for a while.

Afterwards everything must be as `kills.py` demands: no point lost, the ledger equal to the noise that was drawn, one
ended run for each trial. Needs PostgreSQL's programs; ``disk`` and ``network`` need root. Prints a table, exits with 1
if something does not hold.
"""

import argparse
import contextlib
import ipaddress
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from _noise_log import drawn_steps
from kills import Campaign

from sweeper.records import SweepStatus
from sweeper.service.client import submit
from sweeper.tracking.tracker import SPOOL_NAME, replay_spool
from tools.stack.running import Stack, StackSettings

HERE = Path(__file__).resolve().parent
PARTS = {"worker": "ray-worker-1", "head": "ray-head", "mlflow": "mlflow", "postgres": "postgres", "service": "sweeper"}
PATIENCE_SECONDS = 900.0  # without a draw of noise: then something hangs; outlasts the longest pauses of the service
MORE_TRIALS = 4
LAST_WORDS = 1000  # characters of a log
FAILURES = (SweepStatus.FAILED, SweepStatus.STOPPED, SweepStatus.INTERRUPTED)
CABLES = ipaddress.ip_network("10.213.0.0/16")
DISK_BYTES = 2_000_000
CUT_SECONDS = 10.0


@dataclass
class StackCampaign(Campaign):
    """One sweep that the stack's service runs."""

    stack: Stack | None = None

    @property
    def noise(self) -> Path:
        """The folder in which draws of noise are counted, once the sweep has a name."""
        return self.folder / "noise" / self.id if self.id else self.folder / "noise"

    id: str = ""

    @property
    def tracking(self) -> str:
        """The stack's MLflow server."""
        return f"http://{self.stack.address('mlflow', 5000)}"

    @property
    def sweep(self) -> Path | None:
        """The sweep's folder."""
        return self.stack.folder("sweeper", "/sweeps") / self.id

    def submit(self) -> None:
        """Submit the sweep to the service."""
        self.id = submit(f"http://{self.stack.address('sweeper', 8600)}", self.spec, self.stack.token)["id"]

    def state(self) -> SweepStatus | None:
        """How the service says that the sweep stands; nothing while it does not answer."""
        try:
            return SweepStatus(self._ask("")["state"])
        except (OSError, HTTPException):
            return None

    def drawn(self) -> int:
        """How often noise was drawn so far."""
        return sum(drawn_steps(self.noise).values()) if self.noise.exists() else 0

    def wait_for_noise(self) -> None:
        """Wait until more noise is drawn; a sweep that has drawn all of its own is given more trials."""
        before = self.drawn()

        def is_more(state: SweepStatus | None) -> bool:
            if state is SweepStatus.COMPLETED:
                self.extend()
            return self.drawn() > before

        self._wait(is_more, "more noise")

    def extend(self) -> None:
        """Give the sweep more trials; if the service does not answer, nothing has happened."""
        with contextlib.suppress(OSError, HTTPException):
            self._ask("/extend", trials=self.trials + MORE_TRIALS)
            self.trials += MORE_TRIALS

    def wait_for_end(self) -> None:
        """Wait until the service says that the sweep is completed."""
        self._wait(lambda state: state is SweepStatus.COMPLETED, "the end")

    def _wait(self, until: Callable[[SweepStatus | None], bool], awaited: str) -> None:
        """Wait until the sweep stands so; give up when it has failed, or has drawn no noise for long."""
        drawn, end = -1, 0.0
        while not until(state := self.state()):
            if (now := self.drawn()) != drawn:
                drawn, end = now, time.monotonic() + PATIENCE_SECONDS
            if state in FAILURES or time.monotonic() > end:
                raise SystemExit(f"waited in vain for {awaited} of {self.story(state)}")
            time.sleep(0.2)

    def story(self, state: SweepStatus | None) -> str:
        """How the sweep and the stack stand, and what the service and the driver said last."""
        logs = self.stack.folder("ray-head", "/tmp").glob("ray/session_latest/logs/job-driver-*.log")
        last = [self.stack.log("sweeper"), *sorted(logs, key=lambda log: log.stat().st_mtime)[-1:]]
        starts = ", ".join(f"{name} {self.stack.starts(name)}" for name in PARTS.values())
        return "\n".join(
            [
                f"{self.id}, which is {state.value if state else 'not known to a service that answers'}, "
                f"with {self.drawn()} draws so far; parts were started so often: {starts}",
                *(f"{log} ends with: {log.read_text(errors='replace')[-LAST_WORDS:]}" for log in last),
            ]
        )

    def _ask(self, what: str, **content: int) -> dict[str, str]:
        """Return what the service answers about the sweep."""
        url = f"http://{self.stack.address('sweeper', 8600)}/api/v1/sweeps/{self.id}{what}"
        headers = {"Authorization": f"Bearer {self.stack.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url, json.dumps(content).encode() if content else None, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def check(self) -> dict[str, str]:
        """Wait until MLflow has what the sweep left behind, and return what does not hold."""
        spool = self.sweep / SPOOL_NAME
        if spool.exists():
            self.stack.wait_until_well("mlflow")
            replay_spool(spool)
        return self.checks()


def kill_all(stack: Stack, part: str) -> None:
    """Kill every process of a part of the stack at once."""
    name = PARTS[part]
    starts = stack.starts(name)
    for pid in stack.below(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + PATIENCE_SECONDS
    while stack.starts(name) == starts:
        if time.monotonic() > end:
            raise SystemExit(f"{name} is not started again")
        time.sleep(0.05)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own in a folder, full within the block; what is in it stays in the folder afterwards."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True)
    try:
        with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass(frozen=True)
class Cable:
    """What connects this machine with a network namespace, in which programs run as on a machine of their own.

    Attributes:
        within: what goes before a command to run it in the namespace.
        inside: the name of the cable's end there.
        address: this machine's address, as the namespace reaches it.
    """

    within: tuple[str, ...]
    inside: str
    address: str

    def cut(self) -> None:
        """Let nothing through."""
        self._set("down")

    def mend(self) -> None:
        """Let everything through again."""
        self._set("up")

    def _set(self, state: str) -> None:
        subprocess.run([*self.within, "ip", "link", "set", self.inside, state], check=True)


@contextlib.contextmanager
def cable() -> Iterator[Cable]:
    """A network namespace with a cable to this one.

    It has no name: the kernel takes it and the cable away with the last process in it, and the one that holds it ends
    when its input does. So nothing is left to stand in the next one's way, not even by a process that was killed.
    """

    def ip(*arguments: str, within: tuple[str, ...] = ()) -> None:
        subprocess.run([*within, "ip", *arguments], check=True)

    hold = ["unshare", "--net", "sh", "-c", "echo; exec cat"]
    with subprocess.Popen(hold, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        outside, there = f"cable{os.getpid()}", "cable"
        made = Cable(
            within=("nsenter", f"--net=/proc/{holder.pid}/ns/net"),
            inside=there,
            address=str(CABLES[4 * (os.getpid() % (CABLES.num_addresses // 4)) + 1]),
        )
        ip("link", "add", outside, "type", "veth", "peer", "name", there, "netns", str(holder.pid))
        ip("address", "add", f"{made.address}/30", "dev", outside)
        ip("link", "set", outside, "up")
        ip("address", "add", f"{ipaddress.ip_address(made.address) + 1}/30", "dev", there, within=made.within)
        ip("link", "set", "lo", "up", within=made.within)
        made.mend()
        yield made


def kill_during_sweep(stack: Stack, campaign: StackCampaign, *parts: str) -> dict[str, str]:
    """Kill parts of the stack, one after the other, while it runs a sweep."""
    campaign.submit()
    for part in parts:
        campaign.wait_for_noise()
        kill_all(stack, part)
    campaign.wait_for_end()
    stack.wait_until_well(seconds=PATIENCE_SECONDS)
    return campaign.check()


def fill_disk_during_sweep(stack: Stack, campaign: StackCampaign) -> dict[str, str]:
    """Run a sweep with a full volume of artifacts; then there is space again."""
    with small_disk(stack.folder("mlflow", "/artifacts")):
        campaign.submit()
        campaign.wait_for_end()
        waits = (campaign.sweep / SPOOL_NAME).exists()
    held = {"artifacts wait while the disk is full": "" if waits else "nothing waits"}
    return held | campaign.check()


def cut_network_during_sweep(campaign: "CutCampaign", cable: Cable) -> dict[str, str]:
    """Run a driver in the namespace, and cut it off from MLflow while it trains."""
    command = [*cable.within, sys.executable, str(HERE / "_noise_log.py"), str(campaign.noise)]
    command += ["run", str(campaign.folder / "spec.yaml"), str(campaign.folder / "out"), campaign.tracking]
    with (campaign.folder / "driver.log").open("w") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        campaign.wait_for_noise()
        cable.cut()
        time.sleep(CUT_SECONDS)
        cable.mend()
        driver.wait(PATIENCE_SECONDS)
    finally:
        driver.kill()
        driver.wait()
    (campaign.cut,) = (campaign.folder / "out").iterdir()
    return {"the driver ended well": "" if driver.returncode == 0 else f"code {driver.returncode}"} | campaign.check()


class CutCampaign(StackCampaign):
    """A sweep whose driver is not the stack's."""

    cut: Path | None = None

    def state(self) -> None:
        """The service does not know it."""

    @property
    def sweep(self) -> Path | None:
        """The sweep's folder."""
        return self.cut


@contextlib.contextmanager
def counted_stack(folder: Path, say: Callable[[str], None] = lambda _: None) -> Iterator[tuple[Stack, Cable | None]]:
    """A stack whose trials count their draws of noise below ``folder / "noise"``.

    Yields:
        The stack, and, for root, the cable between its MLflow and a namespace.
    """
    with contextlib.ExitStack() as around:
        link = around.enter_context(cable()) if os.geteuid() == 0 else None
        code = (HERE / "_counting", HERE.parent, HERE.parent / "models")  # of this checkout, whatever is installed
        settings = StackSettings(
            file=HERE.parent / "docker-compose.yml",
            state=folder / "state",
            environment={"PYTHONPATH": os.pathsep.join(map(str, code)), "NOISE_LOG": str(folder / "noise")},
            addresses={} if link is None else {"mlflow": link.address},
            say=say,
        )
        yield around.enter_context(Stack(settings)), link


def main() -> None:
    """Let every fault happen, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--only", nargs="*", default=[*PARTS, "disk", "network"])
    parser.add_argument("--state", type=Path, help="an empty folder; a temporary one by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.state or Path(temporary)
        folder.chmod(0o755)
        results = {}
        with counted_stack(folder, print) as (stack, link):
            for fault in options.only:
                kind = CutCampaign if fault == "network" else StackCampaign
                chance = random.Random(0)
                one = kind(folder, options.trials, options.epochs, chance, name=f"fault-{fault}", stack=stack)
                if fault == "network":
                    results[fault] = timed(cut_network_during_sweep, one, link)
                elif fault == "disk":
                    results[fault] = timed(fill_disk_during_sweep, stack, one)
                else:
                    results[fault] = timed(kill_during_sweep, stack, one, fault)
                print(fault, *results[fault], flush=True)
    print("\n| fault | seconds | |\n|---|---|---|")
    for fault, (seconds, found) in results.items():
        print(f"| {fault} | {seconds:.0f} | {'; '.join(found) or 'holds'} |")
    sys.exit(any(found for _, found in results.values()))


def timed(run: Callable[..., dict[str, str]], *given: object) -> tuple[float, list[str]]:
    """Return how long a fault took to be survived, and what does not hold afterwards."""
    start = time.monotonic()
    found = run(*given)
    return time.monotonic() - start, [f"{what}: {why}" for what, why in found.items() if why]


if __name__ == "__main__":
    main()
