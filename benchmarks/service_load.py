"""How long do 200 clients wait for a large sweep, and does the service's memory stay flat? A real server on loopback.

    python benchmarks/service_load.py [--clients 200] [--seconds 60] [--trials 1000] [--epochs 20] [--live]

Writes an imagined sweep of 20,000 points, serves it by `sweeper serve` in a process of its own, and lets so many
clients, each with a token and a connection of its own, ask for its status and its front in turn, without a pause. With
--live the sweep grows meanwhile: points are added ten times a second and the front is written every second, as a driver
would, only faster. Prints the waiting times by what was asked for, and the server's memory over time.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvloop
from large_store import write

from sweeper.service.security.tokens import Role, make_token
from sweeper.store.sweep_folder import SweepFolder

NAME = "large-20250101-000000"
ASKED = {"status": f"/api/v1/sweeps/{NAME}", "front": f"/api/v1/sweeps/{NAME}/front"}
SAMPLES = 12


@dataclass
class Load:
    """What was measured.

    Attributes:
        seconds: waiting times by what was asked for.
        statuses: of the answers, how often each came.
        sizes: bytes of the last answer.
        memory: megabytes of the server, over time.
        cpu_seconds: that the server took.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    sizes: dict[str, int] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def quantile(self, what: str, share: float) -> float:
        """Return the waiting time, in milliseconds, that so large a share did not exceed."""
        ordered = sorted(self.seconds[what])
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--live", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        out = Path(parent) / "out"
        out.mkdir()
        said = write(out / NAME, options.trials, options.epochs)
        print(f"{options.trials * options.epochs} points, {said}; {options.clients} clients, {options.seconds:g} s\n")
        load = measure(out, options.clients, options.seconds, live=options.live)
    print("| asked for | answers | bytes | p50 ms | p95 ms | p99 ms |\n|---|---|---|---|---|---|")
    for what in ASKED:
        waits = " | ".join(f"{load.quantile(what, share):.0f}" for share in (0.5, 0.95, 0.99))
        print(f"| {what} | {len(load.seconds[what])} | {load.sizes[what]} | {waits} |")
    answers = sum(map(len, load.seconds.values()))
    print(f"\n{answers / options.seconds:.0f} answers a second, {1000 * load.cpu_seconds / answers:.2f} ms of CPU each")
    print(f"statuses: {dict(load.statuses)}\nMB of memory over time: {', '.join(f'{m:.0f}' for m in load.memory)}")


def measure(out: Path, clients: int, seconds: float, *, live: bool = False) -> Load:
    """Serve the sweeps in a folder, and ask for one of them."""
    tokens = out.parent / "tokens.json"
    made = [make_token(tokens, Role.READ, 1, "client") for _ in range(clients)]
    with served(out, tokens) as (process, port):
        return uvloop.run(_ask(port, made, seconds, process, out / NAME if live else None))


@contextmanager
def served(out: Path, tokens: Path) -> Iterator[tuple[int, int]]:
    """Run the service; yield the number of its process and its port."""
    program = [sys.executable, "-c", "from sweeper.cli.main import main; main()"]
    arguments = ["serve", "--out", str(out), "--tokens", str(tokens), "--port", "0", "--rate", "0"]
    with (out.parent / "service.log").open("wb") as log:
        server = subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().rpartition(":")[2])
            yield server.pid, port
        finally:
            server.terminate()
            server.wait()
            if server.stdout is not None:
                server.stdout.close()


async def _ask(port: int, tokens: list[str], seconds: float, process: int, growing: Path | None) -> Load:
    load, until, before = Load(), time.monotonic() + seconds, _cpu(process)
    tasks = [_client(port, token, until, load, number) for number, token in enumerate(tokens)]
    watching = asyncio.create_task(_watch(process, seconds, load))
    grown = None if growing is None else asyncio.create_task(asyncio.to_thread(_grow, growing, until))
    await asyncio.gather(*tasks)
    load.cpu_seconds = _cpu(process) - before
    await watching
    if grown is not None:
        await grown
    return load


async def _client(port: int, token: str, until: float, load: Load, number: int) -> None:
    """Ask for one thing after the other over one connection, each of them once at least."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    kinds, first = list(ASKED.items()), number
    while time.monotonic() < until or number < first + len(kinds):
        number += 1
        what, path = kinds[number % len(kinds)]
        began = time.monotonic()
        head = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nAccept-Encoding: gzip\r\n\r\n"
        )
        writer.write(head.encode())
        status, size = await _answer(reader)
        load.seconds[what].append(time.monotonic() - began)
        load.statuses[status] += 1
        load.sizes[what] = size
    writer.close()
    await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, int]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    size = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
    await reader.readexactly(size)
    return int(lines[0].split()[1]), size


async def _watch(process: int, seconds: float, load: Load) -> None:
    for _ in range(SAMPLES):
        await asyncio.sleep(seconds / SAMPLES)
        load.memory.append(memory(process))


def _cpu(process: int) -> float:
    """Return the CPU seconds that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Return the megabytes that a process keeps in memory."""
    text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS:")) / 1024


def _grow(path: Path, until: float) -> None:
    """Add points and write the front now and then, as a driver does."""
    folder = SweepFolder(path)
    content = json.loads(folder.front.read_bytes())
    point, step = next(iter(folder.points().values())), 0
    while time.monotonic() < until:
        step += 1
        folder.save_points([replace(point, epoch=1000 + step)])
        if step % 10 == 0:
            content["hypervolume"]["value"] = 1 / step
            temporary = folder.path / ".front"
            temporary.write_text(json.dumps(content), encoding="utf-8")
            temporary.replace(folder.front)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
