"""Who is let in, in whose name a tool acts, and what a client is told when something fails."""

import datetime
import io
import json
import logging
import math
import re
import urllib.error
from dataclasses import replace
from pathlib import Path

import anyio
import jsonschema
import pytest

from clipless.errors import DataError
from clipless.privacy.events import Relation
from sweeper.account.owner import open_account
from sweeper.cli.main import app
from sweeper.errors import RecordError, SweeperError
from sweeper.service import client as client_module
from sweeper.service.client import Call, Connection
from sweeper.service.mcp import server as server_module
from sweeper.service.mcp.callers import AppCaller, RemoteCaller
from sweeper.service.mcp.outputs import ShownTrials
from sweeper.service.mcp.server import call
from sweeper.service.mcp.tools import TOOLS
from sweeper.service.security.access import COOKIE, make_cookie
from sweeper.service.security.tokens import KnownTokens, Role, make_token, revoke_token
from sweeper.service.settings import MEBIBYTE, Limits, ServiceSettings
from sweeper.specification.addresses import parse_address
from sweeper.specification.yaml_file import parse_mapping
from sweeper.store.actions import read_actions

from ..conftest import DONE, SPEC, bearer, is_problem
from .conftest import HEADERS, ask, use

CONTENT = parse_mapping(SPEC, "the spec")
NAMES = {tool.name: tool for tool in TOOLS}
WRITING = {
    "check_spec": {"spec": CONTENT},
    "submit_sweep": {"spec": CONTENT},
    "enqueue_configuration": {"sweep": DONE, "values": {}},
    "steer_sweep": {"sweep": DONE, "region": []},
    "stop_sweep": {"sweep": DONE},
    "resume_sweep": {"sweep": DONE},
    "extend_sweep": {"sweep": DONE, "trials": 9},
}
READING = {
    "describe_data": {},
    "describe_spec": {},
    "list_accounts": {},
    "list_sweeps": {},
    "watch_sweep": {"sweep": DONE},
    "show_front": {"sweep": DONE},
    "list_trials": {"sweep": DONE},
    "compare_sweeps": {"sweeps": [DONE, "other-20250102-000000"]},
    "pick_point": {"sweep": DONE},
}


@pytest.fixture
def guarded(serve, tokens, make_sweep):
    """A service with tokens and the door."""
    make_sweep()
    make_sweep("other-20250102-000000")
    return serve(mcp=True, tokens=tokens[0])


class Broken:
    """A caller whose service does what nobody thought of."""

    def __init__(self, found):
        self._found = found

    async def read(self, asked):
        del asked
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def told(name, arguments, found):
    """What a tool answers to arguments where the service answers so."""
    result = anyio.run(call, NAMES[name], Broken(found), arguments)
    return result.content[0].text if result.is_error else result.structured_content


def test_every_tool_is_described_and_says_whether_it_changes_something(door):
    listed = {tool["name"]: tool for tool in ask(door, "tools/list", {}).json()["result"]["tools"]}
    assert set(listed) == {*WRITING, *READING, "show_account"}
    for name, tool in listed.items():
        assert tool["annotations"]["readOnlyHint"] is (name not in WRITING or name == "check_spec")
        assert tool["annotations"]["destructiveHint"] is (name == "stop_sweep")
        assert tool["inputSchema"]["additionalProperties"] is False
        for argument in tool["inputSchema"].get("properties", {}).values():
            text = json.dumps(argument)
            assert "description" in text
        assert tool["outputSchema"]["type"] == "object"
    assert {name for name, tool in listed.items() if "privacy budget" in tool["description"]} == {
        "submit_sweep",
        "extend_sweep",
    }


@pytest.mark.parametrize("modern", [False, True], ids=["with a handshake", "without"])
def test_clients_of_both_generations_are_answered(door, modern):
    assert len(ask(door, "tools/list", {}, modern=modern).json()["result"]["tools"]) == len(TOOLS)
    assert use(door, "list_sweeps", {}, modern=modern).content["total"] == 0


@pytest.mark.long
def test_a_reader_reads_and_changes_nothing(guarded, tokens, out):
    before = sorted(path for path in out.rglob("*"))
    reader = bearer(tokens[1]["read"])
    for name, arguments in READING.items():
        assert use(guarded, name, arguments, reader).error is None
    for name, arguments in WRITING.items():
        assert "Expected a token that permits to write" in use(guarded, name, arguments, reader).error
    assert sorted(path for path in out.rglob("*")) == before


@pytest.mark.parametrize("token", [None, "sweeper_00000000_none", "revoked"])
def test_nobody_reaches_a_tool_without_a_token(guarded, tokens, token):
    if token == "revoked":
        token = tokens[1]["write"]
        revoke_token(tokens[0], token.split("_")[1])
    for method in ("tools/list", "tools/call"):
        shown = {} if token is None else bearer(token)
        assert is_problem(ask(guarded, method, {"name": "list_sweeps", "arguments": {}}, shown), 401)


def test_a_browsers_cookie_calls_no_tool(guarded, tokens):
    known = KnownTokens(tokens[0])
    cookie = make_cookie(known, known.find(tokens[1]["write"]))
    assert "Expected a token" in use(guarded, "list_sweeps", {}, {"Cookie": f"{COOKIE}={cookie}"}).error
    other = {"Cookie": f"{COOKIE}={cookie}", "Origin": "http://elsewhere.example"}
    assert is_problem(ask(guarded, "tools/list", {}, other), 403)


def test_what_a_client_does_stands_beside_the_name_of_its_tokens_owner(guarded, tokens, out):
    other = make_token(tokens[0], Role.WRITE, 1, "ben")
    for token in (tokens[1]["write"], other):
        use(guarded, "steer_sweep", {"sweep": DONE, "region": []}, bearer(token))
        assert use(guarded, "submit_sweep", {"spec": CONTENT, "key": "same"}, bearer(token)).error is None
    assert [one.by for one in read_actions(out / DONE)] == ["ada", "ben"]
    rows = use(guarded, "list_sweeps", {}, bearer(other)).content["sweeps"]
    assert sorted(row["by"] for row in rows if row["name"] is None) == ["ada", "ben"], "a key is of its token alone"


def test_the_clients_requests_are_counted_as_those_of_its_token(serve, tokens, make_sweep):
    make_sweep()
    client = serve(mcp=True, tokens=tokens[0], limits=Limits(requests_per_second=1e-9, burst=3))
    shown = bearer(tokens[1]["read"])
    assert use(client, "list_sweeps", {}, shown).error is None  # the call, and what it asks the service
    assert "Expected fewer requests at a time" in use(client, "list_sweeps", {}, shown).error
    assert is_problem(ask(client, "tools/list", {}, shown), 429)


def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_asked():
    for name in ("../check", "a/../../check", "a%2Fb", "x?limit=1", "x#y", "", ".", "..", "a\n", "ä", "x" * 151):
        for tool, more in (("watch_sweep", {}), ("stop_sweep", {}), ("extend_sweep", {"trials": 2})):
            said = told(tool, {"sweep": name, **more}, AssertionError("asked"))
            assert said.endswith(f"(sweep in the arguments of {tool})")
        several = told("compare_sweeps", {"sweeps": [DONE, name]}, AssertionError("asked"))
        assert several.endswith("(sweeps.1 in the arguments of compare_sweeps)")
        trial = told("stop_sweep", {"sweep": DONE, "trial": name}, AssertionError("asked"))
        assert trial.endswith("(trial in the arguments of stop_sweep)")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list_sweeps", {"offset": -1}),
        ("list_sweeps", {"limit": "3"}),
        ("list_sweeps", {"secret": "a cell"}),
        ("watch_sweep", {"sweep": DONE, "seconds": 31}),
        ("watch_sweep", {"sweep": 7}),
        ("check_spec", {"spec": "a cell"}),
        ("submit_sweep", {}),
        ("submit_sweep", {"spec": {}, "by": "a cell"}),
        ("submit_sweep", {"spec": {}, "key": "a cell\r\nAuthorization: x"}),
    ],
)
def test_other_arguments_are_refused_in_one_sentence_that_quotes_nothing(name, arguments):
    said = told(name, arguments, AssertionError("asked"))
    assert f"the arguments of {name})" in said
    assert "a cell" not in said
    assert "\n" not in said


def test_an_error_that_was_not_raised_on_purpose_is_not_told(caplog):
    for error in (ValueError("the cell of Ann"), DataError("the cell of Ann")):
        assert told("list_sweeps", {}, error) == server_module.INTERNAL
    assert "Ann" not in caplog.text
    assert told("list_sweeps", {}, SweeperError("Expected this")) == "Expected this"
    assert told("list_sweeps", {}, RecordError("two\nlines")) == "two lines"


def test_an_answer_and_its_text_are_json_that_everybody_reads_also_of_an_infinite_epsilon():
    async def work(_caller, _asked):
        return ShownTrials(price={}, total=1, trials=[{"trial": "t0001", "epsilon": math.inf}])

    tool = replace(NAMES["list_trials"], work=work)
    result = anyio.run(call, tool, Broken(None), {"sweep": DONE})
    text = result.content[0].text
    found = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert found["trials"] == [{"trial": "t0001", "epsilon": "Infinity"}]
    assert result.structured_content == found, "of which the protocol would make null"
    jsonschema.validate(json.loads(result.model_dump_json())["structured_content"], tool.answer.model_json_schema())


def test_an_answer_of_another_kind_is_no_answer():
    assert told("list_sweeps", {}, {"sweeps": "the cell of Ann"}) == server_module._OTHER
    assert told("list_trials", {"sweep": DONE}, {"trials": [], "ledger": None}) == server_module._OTHER


def test_the_log_of_the_protocol_quotes_nothing(door, capfd):
    secret, written = "the-cell-of-Ann", logging.StreamHandler(io.StringIO())
    logging.getLogger().addHandler(written)
    try:
        door.post("/mcp", content=b"{" + secret.encode(), headers=HEADERS)
        ask(door, "tools/call", {"name": 7, "arguments": {"x": secret}})
        ask(door, secret, {"x": secret})
        use(door, "list_sweeps", {secret: 1})
        logging.getLogger("mcp.server.runner").error("handler for %r raised", secret)  # as it does in some cases
    finally:
        logging.getLogger().removeHandler(written)
    assert secret not in written.stream.getvalue() + "".join(capfd.readouterr())


def test_other_methods_and_long_bodies_are_refused_as_everywhere(door):
    for method in ("GET", "DELETE", "PUT"):
        assert is_problem(door.request(method, "/mcp", headers=HEADERS), 405)
    long = b" " * (MEBIBYTE + 1)
    assert is_problem(door.post("/mcp", content=long, headers={**HEADERS, "Content-Type": "application/json"}), 413)
    parts = {"content": iter([long]), "headers": {**HEADERS, "Content-Type": "application/json"}}
    assert is_problem(door.post("/mcp", **parts), 413)


def test_a_page_that_leads_here_by_another_name_is_turned_away(serve):
    away = serve(mcp=True, base_url="http://rebound.example")
    assert is_problem(ask(away, "tools/list", {}), 421)


def test_without_the_option_there_is_no_door(client):
    assert is_problem(ask(client, "tools/list", {}), 404)


def test_without_the_package_a_service_says_what_it_needs(monkeypatch, out):
    monkeypatch.setattr("sweeper.service.settings.find_spec", lambda name: None if name == "mcp" else object())
    with pytest.raises(SweeperError, match=r"automatic clients needs mcp: pip install 'sweeper\[mcp\]'"):
        ServiceSettings(out=out, mcp=True).check()


def test_the_command_works_for_a_service_or_for_a_folder(tmp_path, monkeypatch):
    served = []

    async def serve_stdio(caller):
        served.append(caller)

    monkeypatch.setattr(server_module, "serve_stdio", serve_stdio)
    monkeypatch.setattr(server_module, "serve_folder", served.append)
    monkeypatch.setenv("SWEEPER_TOKEN", "sweeper_0_x")
    url = "https://sweeper.example.org"
    address = parse_address(f"{tmp_path}/accounts.db#clinic")
    begun = datetime.datetime.now(datetime.UTC)
    terms = {"unit": "row", "relation": Relation.ADD_OR_REMOVE_ONE, "epsilon": 6.8, "delta": 1e-5}
    open_account(address, **terms, by="owner", at=begun)
    local = [
        "--out",
        str(tmp_path / "new"),
        "--data-dir",
        str(tmp_path),
        "--drivers",
        "2",
        "--account",
        f"digits={address}",
    ]
    for arguments in (["--url", url], local):
        app(["mcp", *arguments], standalone_mode=False)
    assert served[0] == RemoteCaller(Connection(url, "sweeper_0_x"))
    settings = served[1].state.parts.settings
    assert (settings.out, settings.data_dir, settings.drivers) == (tmp_path / "new", tmp_path, 2)
    assert settings.accounts == {"digits": address}
    for more in (["--allow-fetch"], ["--data-dir", "x"], ["--account", f"digits={address}"]):
        with pytest.raises(SweeperError, match="beside --url: the service decides"):
            app(["mcp", "--url", url, *more], standalone_mode=False)


def test_every_tool_is_documented_and_nothing_else():
    text = (Path(__file__).parents[4] / "docs" / "automatic-clients.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE) == [tool.name for tool in TOOLS]


def test_both_callers_say_the_same(client, monkeypatch):
    class Opener:
        def open(self, request, timeout):
            del timeout
            headers = {name.lower(): value for name, value in request.header_items()}
            path = request.full_url.removeprefix("http://127.0.0.1:8000")
            got = client.request(request.method, path, content=request.data, headers=headers)
            raise urllib.error.HTTPError(request.full_url, got.status_code, "", {}, io.BytesIO(got.content))

    monkeypatch.setattr(client_module.urllib.request, "build_opener", lambda *_: Opener())
    connection = Connection("http://127.0.0.1:8000", None)
    for asked in (Call("/sweeps/none"), Call("/check", "the spec", "POST", b"{}"), Call("/sweeps", query={"limit": 0})):
        with pytest.raises(SweeperError) as there:
            anyio.run(RemoteCaller(connection).read, asked)
        with pytest.raises(SweeperError) as here:
            client.portal.call(AppCaller(client.app).read, asked)
        assert (here.type, str(here.value)) == (there.type, str(there.value))


def test_what_tools_say_is_what_the_service_says_to_the_same_reader(guarded, tokens):
    """No text or number in an answer of a tool that no answer of the API to that token holds."""
    reader = bearer(tokens[1]["read"])
    addresses = ("/data", "/schema", "/accounts", "/sweeps?limit=20")
    known = set()
    for address in addresses:
        known |= leaves(guarded.get(f"/api/v1{address}", headers=reader).json())
    for sweep in (DONE, "other-20250102-000000"):
        for below in ("", "/front", "/trials", "/pick"):
            known |= leaves(guarded.get(f"/api/v1/sweeps/{sweep}{below}", headers=reader).json())
    own = {"describe_spec": {"about"}, "compare_sweeps": {"hypervolume", "front_points", "price", "differences"}}
    for name, arguments in READING.items():
        content = use(guarded, name, arguments, reader).content
        mine = {"total", "open", "papers"} | own.get(name, set())
        assert leaves(content, mine) <= known | {None, True, False}, name


def leaves(value, without=frozenset()):
    """The texts and numbers within JSON values."""
    if isinstance(value, dict):
        return {leaf for key, inner in value.items() if key not in without for leaf in leaves(inner, without)}
    if isinstance(value, list):
        return {leaf for inner in value for leaf in leaves(inner, without)}
    return {value}
