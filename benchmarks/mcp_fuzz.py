"""Does an automatic client spend more than its share, or see an internal error? A greedy client, then random calls.

    python benchmarks/mcp_fuzz.py [--greedy 1000] [--calls 20000] [--seed 0] [--run]

Runs in this process, without a port, on digits with an account whose budget is epsilon 6 and of which the client may
take half. The greedy client knows what there is to try: other accounts, spenders, splits and paths, huge epsilons, many
small sweeps, keys, resuming and extending, deleting and submitting again, through tools and through the API with the
same token. The random calls are made from the schemas of the tools, with garbage in them, every fifth as raw HTTP.

By default no driver is started, and what a submission reserves counts as spent; with --run drivers train what was
accepted, as a service does. Ends with 1 at an answer that is no result of a tool or no sentence, at a status of 500 or
more, where more than the share is taken, and where the account does not verify.
"""

import argparse
import asyncio
import datetime
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
from large_store import write
from service_fuzz import READ, Idle

SHARE = 0.5
OWNER = "robot"
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
LONGEST = 1000  # characters of a sentence
SPEC: dict[str, Any] = {
    "name": "greedy",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp", "width": 16},
    "training": {"epochs": 1, "batch_size": 256},
    "privacy": {"sweep_epsilon": 1.0, "delta": 1e-5},
    "search": {"trials": 1, "rehearse": False},
}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--greedy", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args()
    for name, calls, work in (("greedy", given.greedy, greedy), ("random", given.calls, scatter)):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            found = asyncio.run(attack(Path(folder), work, calls, random.Random(given.seed), runs=given.run))
            print_table(name, found, time.monotonic() - began)


class BreachError(Exception):
    """Something happened that must not."""


@dataclass
class Attack:
    """One client, its service, and what it was answered.

    Attributes:
        out: the folder of sweeps.
        app: the service.
        account: of the data.
        http: reaches the service with the client's token.
        random: what is chosen by.
        answers: how often each tool or route answered how.
        accepted: sweeps that were submitted.
        drew: how many sweeps drew noise from private rows.
        most: the largest share of the budget that was seen taken; a sweep stopped before it drew gives its own back.
    """

    out: Path
    app: Any
    account: Any
    http: httpx2.AsyncClient
    random: random.Random
    answers: "Counter[tuple[str, str]]" = field(default_factory=Counter)
    accepted: list[str] = field(default_factory=list)
    drew: int = 0
    most: float = 0.0

    async def tool(self, name: str, arguments: Any) -> dict[str, Any] | None:
        """Call a tool over HTTP; return its result, None where it refuses.

        Raises:
            BreachError: an answer that must not be.
        """
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        answer = await self.http.post("/mcp", content=json.dumps(body), headers=HEADERS)
        check_http(name, answer)
        result = answer.json().get("result") if answer.status_code == 200 else None
        if result is None:
            self.answers[name, "no call of a tool"] += 1
            return None
        return self.judge(name, result["isError"], result["content"][0]["text"], result.get("structuredContent"))

    def judge(self, name: str, failed: bool, text: str, content: Any) -> dict[str, Any] | None:
        """Count an answer of a tool, and return its result."""
        check_sentence(name, text) if failed else None
        self.answers[name, "refused" if failed else "done"] += 1
        if not failed and name == "submit_sweep" and content["id"] not in self.accepted:
            self.accepted.append(content["id"])
        return None if failed else content

    async def api(self, method: str, path: str, content: Any = None, **headers: str) -> Any:
        """Send a request to the API with the same token."""
        body = None if content is None else json.dumps(content)
        answer = await self.http.request(method, f"/api/v1{path}", content=body, headers={**HEADERS, **headers})
        check_http(path, answer)
        self.answers[f"{method} of the API", "done" if answer.status_code < 400 else "refused"] += 1
        return answer.json() if answer.status_code < 400 else None

    def taken(self) -> float:
        """Return the share of the budget that the client holds or has drawn.

        Raises:
            BreachError: more than it may, or somebody else holds some.
        """
        from sweeper.account.summary import part_of

        balance = self.account.balance()
        if set(balance.spenders) - {OWNER}:
            raise BreachError(f"somebody else was charged: {', '.join(balance.spenders)}")
        shares = [part_of(balance.taken_by(OWNER, place), balance.budget) for place in balance.places()]
        most = max(shares, default=0.0)
        if most > SHARE * (1 + 1e-9):
            raise BreachError(f"{OWNER} has taken {most}, more than its share of {SHARE}")
        self.most = max(self.most, most)
        return most


async def attack(
    folder: Path,
    work: "Callable[[Attack, int], Any]",
    calls: int,
    chance: random.Random,
    *,
    runs: bool = False,
) -> "tuple[Attack, float]":
    """Let a client loose on a service; return what it was answered, and the share that it has taken.

    Raises:
        SystemExit: as the module says.
    """
    from clipless.privacy.events import Relation
    from sweeper.account.account import Account
    from sweeper.account.entries import Share
    from sweeper.account.owner import open_account
    from sweeper.account.verify import find_folders, verify_account
    from sweeper.service import app as service
    from sweeper.service.security.tokens import Role, make_token
    from sweeper.service.settings import Limits, ServiceSettings
    from sweeper.specification.addresses import parse_address

    service.mount_pages = lambda *_, **__: []  # the API alone
    out, tokens, address = folder / "out", folder / "tokens.json", parse_address(f"{folder / 'accounts.db'}#clinic")
    out.mkdir()
    now = datetime.datetime.now(datetime.UTC)
    open_account(
        address,
        unit="row",
        relation=Relation.ADD_OR_REMOVE_ONE,
        epsilon=6.0,
        delta=1e-5,
        by="operator",
        at=now,
        shares=(Share(name=OWNER, part=SHARE),),
    )
    token = make_token(tokens, Role.WRITE, 1, OWNER)
    settings = ServiceSettings(
        out=out,
        tokens=tokens,
        mcp=True,
        accounts={"digits": address},
        limits=Limits(requests_per_second=0, queued=10**6),
    )
    app = service.create_app(settings, None if runs else Idle())
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    shown = {"Authorization": f"Bearer {token}"}
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=shown) as http,
    ):
        found = Attack(out, app, Account(address), http, chance)
        broken = ""
        try:
            await work(found, calls)
        except BreachError as error:  # raised here it would leave in a group of errors
            broken = str(error)
        while not broken and runs and any([await is_active(found, name) for name in found.accepted]):
            await asyncio.sleep(1.0)
    if broken:
        sys.exit(broken)
    sweeps = found.account.balance().sweeps.values()
    found.drew = sum(any(cost.square > 0 for cost in one.drawn.values()) for one in sweeps)
    taken, verdict = found.taken(), verify_account(address, find_folders([out]))
    if verdict.findings:
        sys.exit(f"the account does not verify: {verdict.findings[0]}")
    return found, taken


async def is_active(found: Attack, name: str) -> bool:
    """Return whether a sweep waits or runs."""
    answer = await found.http.get(f"/api/v1/sweeps/{name}")
    return answer.status_code == 200 and answer.json()["state"] in ("queued", "starting", "running", "stopping")


async def greedy(client: Attack, calls: int) -> None:
    """Try everything that there is to try, over and over."""
    tries = list(temptations())
    for number in range(calls):
        await tries[number % len(tries)](client, number)
        client.taken()


def temptations() -> Iterator[Callable[[Attack, int], Any]]:
    """Yield what a greedy client tries, one after the other."""

    def changed(**sections: Any) -> dict[str, Any]:
        return {**SPEC, **{name: {**SPEC[name], **keys} for name, keys in sections.items()}}

    def submit(make: Callable[[int], dict[str, Any]]) -> Callable[[Attack, int], Any]:
        async def work(client: Attack, number: int) -> None:
            await client.tool("submit_sweep", {"spec": make(number)})

        return work

    for epsilon in (1.0, 0.3, 3.0, 5.9, 100.0, 1e300, 0.01):  # small ones fill what large ones leave
        yield submit(lambda n, e=epsilon: {**changed(privacy={"sweep_epsilon": e}), "name": f"greedy-{n}"})
    for section, keys in (
        ("privacy", {"account": "accounts.db#clinic"}),
        ("privacy", {"account": "other.db#mine"}),
        ("privacy", {"account": "postgresql://elsewhere/db#mine"}),
        ("privacy", {"account": None}),
        ("privacy", {"spender": "ada"}),
        ("privacy", {"sweep_epsilon": None, "epsilon": 3.0}),
        ("privacy", {"sweep_epsilon": -1.0}),
        ("privacy", {"delta": 0.5}),
        ("privacy", {"relation": "replace-one"}),
        ("data", {"splits": {"validation": 0.2, "salt": "mine"}}),
        ("data", {"evaluation": "exploratory"}),
        ("data", {"evaluation": "private"}),
        ("data", {"path": "../accounts.db", "name": None}),
        ("data", {"path": "/etc/passwd", "ranges": "/etc/passwd", "name": None}),
        ("data", {"name": "../digits"}),
        ("data", {"unit": "person"}),
        ("training", {"method": "non-private"}),
        ("search", {"trials": 1000}),
        ("search", {"repeats": 9}),
        ("search", {"selection": "private"}),
    ):
        yield submit(lambda n, s=section, k=keys: {**changed(**{s: k}), "name": f"other-{n}"})
    for name in ("../../accounts.db", "a/b", ".hidden", "robot\n", "x" * 500, "accounts.db"):
        yield submit(lambda _, name=name: {**SPEC, "name": name})

    async def repeat(client: Attack, number: int) -> None:
        for name in (f"first-{number}", f"second-{number}"):
            await client.tool("submit_sweep", {"spec": {**SPEC, "name": name}, "key": f"key-{number}"})

    async def delete_and_submit(client: Attack, number: int) -> None:
        if client.accepted:
            name = client.random.choice(client.accepted)
            await client.tool("stop_sweep", {"sweep": name})
            await client.api("DELETE", f"/sweeps/{name}")
        await client.tool("submit_sweep", {"spec": {**SPEC, "name": f"again-{number}"}})

    async def more(client: Attack, number: int) -> None:
        for name in client.accepted[-3:]:
            await client.tool("stop_sweep", {"sweep": name})
            await client.tool("extend_sweep", {"sweep": name, "trials": 10 ** (number % 7)})
            await client.tool("resume_sweep", {"sweep": name})
            await client.tool("enqueue_configuration", {"sweep": name, "values": {"privacy.sweep_epsilon": 99.0}})

    async def as_somebody(client: Attack, number: int) -> None:
        spec = {**SPEC, "name": f"ada-{number}"}
        await client.tool("submit_sweep", {"spec": spec, "by": "ada"})
        await client.api("POST", "/sweeps", spec, **{"X-Owner": "ada", "Idempotency-Key": f"ada-{number}"})
        await client.api("POST", "/sweeps?owner=ada", spec)

    async def at_once(client: Attack, number: int) -> None:
        specs = [{**changed(privacy={"sweep_epsilon": 1.5}), "name": f"race-{number}-{one}"} for one in range(4)]
        await asyncio.gather(*(client.tool("submit_sweep", {"spec": spec}) for spec in specs))

    async def look(client: Attack, number: int) -> None:
        del number
        for name in client.accepted[-1:]:
            for tool in ("watch_sweep", "show_front", "list_trials", "pick_point"):
                await client.tool(tool, {"sweep": name})
        for path in ("/accounts", "/accounts/clinic", "/accounts/clinic/entries"):
            await client.api("GET", path)

    yield from (repeat, delete_and_submit, more, as_somebody, at_once, look)


async def scatter(client: Attack, calls: int) -> None:
    """Call tools at random with what their schemas allow, and with garbage."""
    from sweeper.service.mcp.callers import AppCaller
    from sweeper.service.mcp.server import call
    from sweeper.service.mcp.tools import TOOLS

    shown: Any = SimpleNamespace(headers=client.http.headers, client=None)
    write(client.out / READ, 20, 3)  # a sweep that has a front
    caller = AppCaller(client.app, shown)  # as the door calls it, with the client's token
    schemas = {tool.name: tool.arguments.model_json_schema() for tool in TOOLS}
    for number in range(calls):
        tool = client.random.choice(TOOLS)
        arguments = Arguments(client.random, [READ, *client.accepted[-3:]]).of(schemas[tool.name], schemas[tool.name])
        if number % 5 == 0 or not isinstance(arguments, dict):
            await client.tool(tool.name if client.random.random() < 0.9 else "odd", arguments)
            await raw(client)
        else:
            result = await call(tool, caller, {**arguments, **({"seconds": 0} if "seconds" in arguments else {})})
            client.judge(tool.name, result.is_error, result.content[0].text, result.structured_content)
        if number % 500 == 0:
            client.taken()


async def raw(client: Attack) -> None:
    """Send what is no call."""
    odd = [
        b"",
        b"[]",
        b"{",
        b"[" * 10_000,
        b'"\\ud800"',
        b"\xff\xfe",
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}',
    ]
    for method in ("tools/call", "tools/list", "resources/read", "initialize", "server/discover", "odd"):
        for params in ({}, {"name": 7}, {"name": "x", "arguments": []}, {"cursor": "x"}, {"_meta": {"a": 1}}):
            odd.append(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
    body = client.random.choice(odd)
    headers = {**HEADERS, **({"MCP-Protocol-Version": "2026-07-28"} if client.random.random() < 0.5 else {})}
    check_http("/mcp", await client.http.post("/mcp", content=body, headers=headers))


@dataclass(frozen=True)
class Arguments:
    """Makes arguments of a JSON schema, now and then of another."""

    random: random.Random
    sweeps: Sequence[str]

    def of(self, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Any:
        """Return a value."""
        if self.random.random() < 0.04:
            return self.odd()
        if "anyOf" in schema:
            return self.of(self.random.choice(schema["anyOf"]), whole)
        match schema.get("type"):
            case "object" if "properties" in schema:
                return self._of_properties(schema, whole)
            case "object":
                return self._mapping(schema)
            case "array":
                size = self.random.randint(0, 4)
                return [self.of(schema["items"], whole) for _ in range(size)]
            case "integer":
                low, high = schema.get("minimum", -5), schema.get("maximum", 50)
                return self.random.choice([low, high, low - 1, high + 1, self.random.randint(low, min(high, low + 50))])
            case "number":
                return self.random.choice([0.5, 3.0, -1.0, 1e308, 0, 7])
            case "boolean":
                return self.random.random() < 0.5
            case "null":
                return None
        return self._text()

    def odd(self) -> Any:
        """Return what nobody expects."""
        deep: Any = []
        for _ in range(60):
            deep = [deep]
        texts = ["", "../x", "a/../../check", "\ud800", "x" * 5000, "\n", "NaN", "sweeper_00000000_x", "%2e%2e", "\x00"]
        values = [None, True, -1, 10**400, 1e999, float("nan"), [], {}, {"": {}}, deep, 2**63]
        return self.random.choice([*texts, *values])

    def _of_properties(self, schema: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
        made = {}
        for name, inner in schema["properties"].items():
            if name in schema.get("required", ()) or self.random.random() < 0.6:
                made[name] = self.of(inner, whole) if name != "spec" else self._spec()
        if self.random.random() < 0.03:
            made[self.random.choice(["by", "spender", "__class__", "token"])] = self.odd()
        return made

    def _spec(self) -> Any:
        spec = json.loads(json.dumps(SPEC))
        spec["name"] = self.random.choice(["a", "b-1", "c.d", self._text()])
        for _ in range(self.random.randint(0, 2)):
            section = self.random.choice(list(SPEC))
            if isinstance(spec.get(section), dict):
                keys = [*spec[section], "account", "epsilon", "splits", "path", "trials", "objectives", "method"]
                values = [0.1, 1.0, 2.5, 9, [1, 2], {"log": [0.1, 1]}, "digits", "other.db#mine", self.odd()]
                spec[section][self.random.choice(keys)] = self.random.choice(values)
        return spec if self.random.random() > 0.03 else self.odd()

    def _mapping(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        del schema
        names = ["training.learning_rate", "model.width", "accuracy", "epsilon", "certified@36/255", self._text()]
        values = [0.1, 16, "x", None, True, self.odd()]
        size = self.random.randint(0, 3)
        return {self.random.choice(names): self.random.choice(values) for _ in range(size)}

    def _text(self) -> str:
        known = ["t0001", "epsilon <= 3", "accuracy >= 0.4", "privacy", "training.loss", "key-1", "clinic", "none"]
        return self.random.choice(
            [*known, *self.sweeps[-20:], *(["../" * 3, "x" * 300] if self.random.random() < 0.1 else [])]
        )


def check_http(what: str, answer: Any) -> None:
    """End the program at an internal error."""
    if answer.status_code >= 500:
        raise BreachError(f"{what}: {answer.status_code} {answer.text[:300]}")


def check_sentence(name: str, text: str) -> None:
    """End the program at a refusal that is no sentence, or tells what it must not."""
    from sweeper.service.mcp.server import INTERNAL

    if text == INTERNAL or "Traceback" in text or "\n" in text or not 10 < len(text) <= LONGEST:
        raise BreachError(f"{name}: {text[:500]}")


def print_table(name: str, found: "tuple[Attack, float]", seconds: float) -> None:
    """Print how often each tool did something, and what was taken."""
    client, taken = found
    print(f"\n| {name} | answer | times |\n|---|---|---|")
    for (tool, answer), times in sorted(client.answers.items()):
        print(f"| {tool} | {answer} | {times} |")
    print(
        f"\n{client.answers.total()} answers in {seconds:.0f} s, no internal error; {len(client.accepted)} sweeps "
        f"accepted, {client.drew} drew noise; {taken:.4f} of the budget taken, of a share of {SHARE}"
    )


if __name__ == "__main__":
    main()
