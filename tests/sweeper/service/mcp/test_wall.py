"""The account of the data is the wall: what an automatic client spends, and a server that is killed meanwhile."""

import datetime
import json
import os
import random
import re
import subprocess
import sys
import time

import pytest

from clipless.privacy.events import Relation
from sweeper.account.account import Account
from sweeper.account.entries import Share
from sweeper.account.owner import open_account
from sweeper.account.summary import part_of
from sweeper.account.verify import find_folders, verify_account
from sweeper.service.security.tokens import Role, make_token
from sweeper.specification.addresses import parse_address
from sweeper.specification.yaml_file import parse_mapping

from ..conftest import bearer
from .conftest import META, use

SPEC = parse_mapping(
    """\
name: small
data: {name: digits}
model: {architecture: mlp, width: 16}
training: {epochs: 1, batch_size: 256}
privacy: {sweep_epsilon: 3, delta: 1e-5}
search: {trials: 1, rehearse: false}
""",
    "the spec",
)
LOCAL = "a local user"
PROGRAM = "from sweeper.cli.main import main; main()"


@pytest.fixture
def account(tmp_path):
    """An account of which two spenders have shares."""
    address = parse_address(f"{tmp_path}/accounts.db#clinic")
    terms = {"unit": "row", "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": 6.8, "delta": 1e-5, "by": "owner"}
    shares = (Share(name="robot", part=0.4), Share(name=LOCAL, part=0.6))
    open_account(address, **terms, at=datetime.datetime.now(datetime.UTC), shares=shares)
    return Account(address)


def taken(account, spender):
    """The share of the budget that a spender has taken."""
    balance = account.balance()
    return max([part_of(balance.taken_by(spender, place), balance.budget) for place in balance.places()], default=0.0)


@pytest.mark.long
def test_four_sweeps_at_3_fit_into_6_8_and_the_fifth_is_refused(serve, tmp_path):
    address = parse_address(f"{tmp_path}/accounts.db#clinic")
    terms = {"unit": "row", "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": 6.8, "delta": 1e-5, "by": "owner"}
    open_account(address, **terms, at=datetime.datetime.now(datetime.UTC))
    service = serve(mcp=True, accounts={"digits": address})
    spec = SPEC | {"training": {"epochs": 60, "batch_size": 256}}
    for _ in range(4):
        assert use(service, "submit_sweep", {"spec": spec}).error is None
    held = Account(address).head
    refused = use(service, "submit_sweep", {"spec": spec}).error
    assert re.search(r"lower privacy\.sweep_epsilon to [\d.]+, the most that fits", refused)
    assert Account(address).head == held


def test_a_client_spends_its_owners_share_and_is_told_what_would_fit(serve, account, tmp_path):
    token = make_token(tmp_path / "tokens.json", Role.WRITE, 1, "robot")
    service = serve(mcp=True, tokens=tmp_path / "tokens.json", accounts={"digits": account.address})
    client = bearer(token)
    quoted = use(service, "check_spec", {"spec": SPEC}, client).content["account"]
    assert (quoted["spender"], quoted["refused"]) == ("robot", None)
    made = use(service, "submit_sweep", {"spec": SPEC, "key": "mine"}, client).content
    assert made["account"]["left_behind"] == pytest.approx(quoted["left_behind"])
    assert use(service, "submit_sweep", {"spec": SPEC, "key": "mine"}, client).content["id"] == made["id"]
    refused = use(service, "submit_sweep", {"spec": SPEC}, client).error
    assert "the share of robot in account 'clinic', 40 % of its budget" in refused
    fitting = re.search(r"lower privacy\.sweep_epsilon to ([\d.]+), the most that fits", refused).group(1)
    narrower = SPEC | {"privacy": SPEC["privacy"] | {"sweep_epsilon": float(fitting)}}
    assert use(service, "check_spec", {"spec": narrower}, client).content["account"]["refused"] is None
    assert taken(account, "robot") == pytest.approx(quoted["takes"])
    assert set(account.balance().spenders) == {"robot"}
    (listed,) = use(service, "list_accounts", {}, client).content["accounts"]
    assert (listed["name"], listed["data"]) == ("clinic", ["digits"])
    shown = use(service, "show_account", {"account": "clinic"}, client).content
    assert shown["room"]["left"] == pytest.approx(quoted["left_behind"])
    assert shown["epsilon"] == pytest.approx(6.8)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "forged",
    [
        {"privacy": {"account": "other.db#mine"}},
        {"privacy": {"spender": LOCAL}},
        {"data": {"path": "/etc/passwd", "name": None}},
    ],
    ids=str,
)
def test_a_spec_cannot_leave_the_account(serve, account, tmp_path, forged):
    token = make_token(tmp_path / "tokens.json", Role.WRITE, 1, "robot")
    service = serve(mcp=True, tokens=tmp_path / "tokens.json", accounts={"digits": account.address})
    spec = {**SPEC, **{section: {**SPEC[section], **keys} for section, keys in forged.items()}}
    assert use(service, "submit_sweep", {"spec": spec}, bearer(token)).error.startswith(
        "The service refuses the spec: "
    )
    assert not account.balance().sweeps


@pytest.mark.long
def test_rows_that_are_public_with_one_split_are_not_with_another(serve, account, tmp_path):
    token = make_token(tmp_path / "tokens.json", Role.WRITE, 1, "robot")
    service = serve(mcp=True, tokens=tmp_path / "tokens.json", accounts={"digits": account.address})
    assert use(service, "submit_sweep", {"spec": SPEC}, bearer(token)).error is None
    moved = {**SPEC, "data": {"name": "digits", "splits": {"salt": "mine"}}}
    refused = use(service, "submit_sweep", {"spec": moved}, bearer(token)).error
    assert refused.startswith("Expected the rows that are public in earlier sweeps of account 'clinic', got others")
    assert len(account.balance().sweeps) == 1


@pytest.mark.long
def test_a_sweep_of_another_split_is_charged_on_every_side(serve, account, tmp_path):
    token = make_token(tmp_path / "tokens.json", Role.WRITE, 1, "robot")
    service = serve(mcp=True, tokens=tmp_path / "tokens.json", accounts={"digits": account.address})
    small = {**SPEC, "privacy": {"sweep_epsilon": 1, "delta": 1e-5}}
    private = {"name": "digits", "evaluation": "private"}
    for data in (private, private | {"splits": {"validation": 0.2, "salt": "mine"}}):
        assert use(service, "submit_sweep", {"spec": {**small, "data": data}}, bearer(token)).error is None
    ours, other = account.balance().sweeps.values()
    assert len({cost.square for cost in ours.held.values()}) > 1
    assert len({cost.square for cost in other.held.values()}) == 1
    assert {side for side, cost in other.held.items() if cost.square > 0} >= {
        side for side, cost in ours.held.items() if cost.square > 0
    }


class Server:
    """`sweeper mcp` as a process, spoken to line by line."""

    def __init__(self, out, account, environment):
        command = [sys.executable, "-c", PROGRAM, "mcp", "--out", str(out), "--account", f"digits={account.address}"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )

    def send(self, name, arguments):
        params = {"name": name, "arguments": arguments, "_meta": META}
        self.process.stdin.write(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}) + "\n"
        )
        self.process.stdin.flush()

    def use(self, name, **arguments):
        self.send(name, arguments)
        return json.loads(self.process.stdout.readline())["result"]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.mark.long
def test_a_server_that_is_killed_while_it_submits_never_overspends(account, tmp_path):
    out, chance = tmp_path / "out", random.Random(0)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    small = {**SPEC, "privacy": {"sweep_epsilon": 1, "delta": 1e-5}}
    for attempt in range(8):
        server = Server(out, account, environment)
        assert server.use("list_sweeps")["isError"] is False  # it is there
        server.send("submit_sweep", {"spec": small, "key": f"key-{attempt // 2}"})  # every second one is a repetition
        time.sleep(chance.uniform(0.0, 4.0))
        server.kill()
        assert taken(account, LOCAL) <= 0.6
    server = Server(out, account, environment)
    for attempt in range(4):
        server.use("submit_sweep", spec=small, key=f"key-{attempt}")
    rows = server.use("list_sweeps", limit=100)["structuredContent"]["sweeps"]
    assert len(rows) == 4, "a sweep for each key, and no other"
    while any(row["state"] in ("queued", "starting", "running") for row in rows):
        server.use("watch_sweep", sweep=rows[0]["id"], seconds=1)
        time.sleep(0.5)
        rows = server.use("list_sweeps", limit=100)["structuredContent"]["sweeps"]
    server.kill()
    assert {row["state"] for row in rows} == {"completed"}
    assert taken(account, LOCAL) <= 0.6
    found = verify_account(account.address, find_folders([out]))
    assert (found.findings, found.folders) == ((), 4)
