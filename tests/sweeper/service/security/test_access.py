"""Who may do what: every path, every role, browsers, and pages from elsewhere."""

import asyncio
import re
import time
from urllib.parse import urlencode

import pytest
from itsdangerous import TimestampSigner
from starlette.testclient import TestClient

from sweeper.errors import SweeperError
from sweeper.service import app as app_module
from sweeper.service.security.access import COOKIE, COOKIE_SECONDS, FORM_KEY, host_of, make_cookie, read_cookie
from sweeper.service.security.tokens import KnownTokens, Role, make_token, revoke_token
from sweeper.service.settings import Limits, ServiceSettings, is_loopback

from ..conftest import DONE, SPEC, YAML, bearer, is_problem

OPEN = {"/healthz", "/login"}


@pytest.fixture
def guarded(serve, tokens, make_sweep):
    """A client of a service with tokens."""
    make_sweep()
    return serve(tokens=tokens[0])


def paths(client):
    """Every method and path of the service, from its own description and its other routes."""
    described = client.app.openapi()["paths"]
    found = [(method.upper(), path) for path, methods in described.items() for method in methods]
    found += [("GET", "/"), ("GET", "/live/x"), ("GET", "/live/state"), ("GET", "/api/openapi.json")]
    found += [("POST", "/logout"), ("GET", "/nothing"), ("GET", "/healthz/"), ("GET", "/login/x"), ("GET", "//healthz")]
    fill = {"{sweep}": DONE, "{trial}": "t0001", "{epoch}": "1", "{account}": "clinic"}
    for method, path in found:
        for key, value in fill.items():
            path = path.replace(key, value)
        yield method, path


def test_everything_but_health_and_the_form_is_closed_without_a_token(guarded):
    tried = list(paths(guarded))
    assert len(tried) > 20
    for method, path in tried:
        answer = guarded.request(method, path)
        if path in OPEN:
            assert answer.status_code == 200
        else:
            assert is_problem(answer, 401, "Authorization: Bearer TOKEN"), path
            assert answer.headers["www-authenticate"] == 'Bearer realm="sweeper"'


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "header",
    ["Bearer nobody", "Bearer ", "Bearer", "", "Basic {token}", "{token}", "Bearer {token}x", "Bearer {token} {token}"],
)
def test_only_a_known_token_shown_as_one_opens(header, guarded, tokens):
    answer = guarded.get("/api/v1/sweeps", headers={"Authorization": header.format(token=tokens[1]["write"])})
    assert is_problem(answer, 401)
    both = [("Authorization", f"Bearer {tokens[1]['write']}"), ("Authorization", "Bearer x")]
    assert guarded.get("/api/v1/sweeps", headers=both).status_code == 401
    assert guarded.get(f"/api/v1/sweeps?token={tokens[1]['write']}").status_code == 401, "no token in an address"


def test_a_reader_reads_and_changes_nothing(guarded, tokens, launcher):
    reader = bearer(tokens[1]["read"])
    for method, path in paths(guarded):
        if method == "GET" and path.startswith("/api/"):
            known = (200, 409, 503) if "/accounts/" not in path else (404,)  # no papers without a ledger, no account
            assert guarded.get(path, headers=reader).status_code in known, path
        elif path.startswith("/api/"):
            assert is_problem(guarded.request(method, path, headers=reader), 403, "--role write"), path
    guarded.post("/api/v1/sweeps", content=SPEC, headers=reader | YAML)
    guarded.app.state.parts.supervisor.tick()
    assert launcher.started == []


def test_a_writer_reads_and_writes(guarded, tokens):
    writer = bearer(tokens[1]["write"])
    assert guarded.get("/api/v1/sweeps", headers=writer).status_code == 200
    assert guarded.post("/api/v1/sweeps", content=SPEC, headers=writer | YAML).status_code == 201


def test_a_revoked_or_expired_token_opens_no_more(guarded, tokens, monkeypatch):
    path, made = tokens
    reader = bearer(made["read"])
    assert guarded.get("/metrics", headers=reader).status_code == 200
    revoke_token(path, made["read"].split("_")[1])
    assert guarded.get("/metrics", headers=reader).status_code == 401
    later = time.time() + 2 * 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert guarded.get("/metrics", headers=bearer(made["write"])).status_code == 401


def log_in(client, token, **headers):
    form = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    return client.post("/login", content=urlencode({"token": token}), headers=form, follow_redirects=False)


def test_a_browser_exchanges_a_token_for_a_cookie_that_only_reads(guarded, tokens):
    answer = log_in(guarded, tokens[1]["write"])
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert f"Max-Age={COOKIE_SECONDS}" in cookie
    assert tokens[1]["write"].split("_", 2)[2] not in cookie
    assert guarded.get(f"/api/v1/sweeps/{DONE}").status_code == 200
    assert is_problem(guarded.post(f"/api/v1/sweeps/{DONE}/resume"), 403, "a form of this service")
    assert is_problem(guarded.post("/live/state"), 404), "the page only reads"


def form_key(client, tokens):
    """What a page of the service sends with its forms; empty for a reader."""
    return read_cookie(KnownTokens(tokens[0]), client.cookies[COOKIE]).form_key


def test_a_form_of_the_service_writes_as_its_token_permits(guarded, tokens):
    log_in(guarded, tokens[1]["write"])
    key = form_key(guarded, tokens)
    note = f"/api/v1/sweeps/{DONE}/trials/t0001/note"

    def noted(*keys, **headers):
        given = [*headers.items(), *((FORM_KEY, one) for one in keys)]
        return guarded.post(note, json={"text": "seen"}, headers=given)

    assert noted(key).status_code == 201
    for wrong in ((), ("",), (key[:-1],), (key, key), (key.upper(),), ("é".encode("latin-1"),)):
        assert is_problem(noted(*wrong), 403, "a form of this service"), wrong
    assert is_problem(noted(key, Origin="https://evil.example"), 403, "another origin")
    cookie = guarded.cookies[COOKIE]
    guarded.cookies.clear()
    assert is_problem(noted(key), 401), "the key alone opens nothing"
    later = make_cookie(KnownTokens(tokens[0]), KnownTokens(tokens[0]).holder(tokens[1]["read"].split("_")[1]))
    assert is_problem(noted(key, Cookie=f"{COOKIE}={later}"), 403), "nor does it in another session"
    assert noted(key, Cookie=f"{COOKIE}={cookie}").status_code == 201
    revoke_token(tokens[0], tokens[1]["write"].split("_")[1])
    assert is_problem(noted(key, Cookie=f"{COOKIE}={cookie}"), 401)


@pytest.mark.parametrize(("role", "more"), [("read", {}), ("write", {"read": "1"})])
def test_a_session_that_only_reads_has_no_key(role, more, guarded, tokens):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    guarded.post("/login", content=urlencode({"token": tokens[1][role]} | more), headers=form, follow_redirects=False)
    assert guarded.get(f"/api/v1/sweeps/{DONE}").status_code == 200
    assert form_key(guarded, tokens) == ""
    for key in ("", "0" * 64):
        answer = guarded.post(f"/api/v1/sweeps/{DONE}/resume", headers={FORM_KEY: key})
        assert is_problem(answer, 403, "--role write")


def test_the_keys_of_two_sessions_differ(guarded, tokens, monkeypatch):
    keys = set()
    for later in (0, 5):
        now = time.time() + later
        monkeypatch.setattr(time, "time", lambda now=now: now)
        log_in(guarded, tokens[1]["write"])
        keys.add(form_key(guarded, tokens))
    assert len(keys) == 2


def test_a_cookie_is_sent_over_https_only_where_that_is_said(serve, tokens):
    client = serve(tokens=tokens[0], secure_cookies=True)
    assert "; secure" in log_in(client, tokens[1]["read"]).headers["set-cookie"].lower()


def test_a_wrong_token_gives_no_cookie(guarded):
    answer = log_in(guarded, "sweeper_0_<script>")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "<script>" not in answer.text
    assert guarded.post("/login", content=b"\xff=&token").status_code == 401
    for fields in (b"&".join(b"a=%d" % i for i in range(7)), b"&" * 100):
        assert guarded.post("/login", content=fields).status_code == 401, "another form"
    assert is_problem(guarded.post("/login", content=b"token=" + b"x" * 3000), 413)


def test_a_service_without_tokens_has_no_cookies(client):
    assert log_in(client, "").status_code == 401


def test_a_cookie_ends_with_its_time_its_token_and_its_key(guarded, tokens, monkeypatch):
    path, made = tokens
    log_in(guarded, made["read"])
    good = guarded.cookies[COOKIE]
    guarded.cookies.clear()

    def status(value):
        return guarded.get("/api/v1/sweeps", headers={"Cookie": f"{COOKIE}={value}"}).status_code

    assert status(good) == 200
    other = TimestampSigner("another key").sign(made["read"].split("_")[1]).decode()
    for bad in (other, good[:-1], good + "x", "", "..", made["read"], good.replace(".", "_", 1)):
        assert status(bad) == 401, bad
    later = time.time() + COOKIE_SECONDS + 2
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: later)
        assert status(good) == 401
    revoke_token(path, made["read"].split("_")[1])
    assert status(good) == 401


def test_a_browser_without_a_cookie_is_led_to_the_form_and_a_program_is_not(guarded):
    page = guarded.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (page.status_code, page.headers["location"]) == (303, "/login")
    assert is_problem(guarded.get("/api/v1/sweeps", headers={"Accept": "text/html"}), 401)
    form = guarded.get("/login")
    assert 'type="password"' in form.text
    assert "script-src" not in form.headers["content-security-policy"]
    assert form.headers["content-security-policy"].startswith("default-src 'none'")


def test_signing_out_forgets_the_cookie(guarded, tokens):
    log_in(guarded, tokens[1]["read"])
    assert guarded.post("/logout", follow_redirects=False).headers["location"] == "/login"
    assert guarded.get("/api/v1/sweeps").status_code == 401


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.", "[::1", "", "evil.example:8000"]
)
def test_a_name_made_to_lead_here_is_turned_away(host, client):
    for path in ("/api/v1/sweeps", "/healthz", "/login", "/"):
        assert is_problem(client.get(path, headers={"Host": host}), 421, "Host")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost:1", "LOCALHOST", "[::1]:8000"])
def test_the_names_of_this_machine_are_known(host, client):
    assert client.get("/api/v1/sweeps", headers={"Host": host}).status_code == 200


def test_names_that_are_given_are_known_and_no_others(serve, tokens):
    client = serve(tokens=tokens[0], host="0.0.0.0", hosts=("sweeper.example",), base_url="http://sweeper.example")
    assert client.get("/healthz").status_code == 200
    assert client.get("/healthz", headers={"Host": "other.example"}).status_code == 421


def test_a_service_for_others_without_names_is_reached_by_any(serve, tokens):
    client = serve(tokens=tokens[0], host="0.0.0.0", base_url="http://anything.example")
    assert client.get("/healthz").status_code == 200


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": ""},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        [("Origin", "http://127.0.0.1"), ("Origin", "https://evil.example")],
    ],
)
@pytest.mark.usefixtures("launcher")
def test_a_page_of_another_origin_changes_nothing(headers, client):
    kinds = [*YAML.items()]
    given = kinds + (list(headers.items()) if isinstance(headers, dict) else headers)
    assert is_problem(client.post("/api/v1/sweeps", content=SPEC, headers=given), 403, "another origin")
    assert client.get("/api/v1/sweeps").json()["total"] == 0


def test_a_page_of_the_service_itself_is_no_other_origin(client):
    own = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/v1/sweeps", content=SPEC, headers=YAML | own).status_code == 201


def test_a_web_socket_needs_all_that_a_request_needs(guarded, tokens):
    async def accept(socket):
        await socket.accept()
        await socket.close()

    guarded.app.router.add_websocket_route("/live/socket", accept)

    def answered(*headers):
        scope = {"type": "websocket", "path": "/live/socket", "raw_path": b"", "query_string": b"", "client": None}
        sent = []

        async def send(message):
            sent.append(message["type"])

        async def receive():
            return {"type": "websocket.connect"}

        pairs = [(b"host", b"127.0.0.1"), *headers]
        asyncio.run(guarded.app(scope | {"headers": pairs, "subprotocols": []}, receive, send))
        return sent

    token = (b"authorization", f"Bearer {tokens[1]['read']}".encode())
    assert answered(token) == ["websocket.accept", "websocket.close"]
    assert answered() == ["websocket.close"]
    assert answered(token, (b"origin", b"https://evil.example")) == ["websocket.close"]
    assert answered(token, (b"host", b"evil.example")) == ["websocket.close"]


def test_the_installed_page_is_behind_the_door_and_works_for_a_reader(out, tokens, make_sweep, launcher):
    make_sweep()
    settings = ServiceSettings(out=out, tokens=tokens[0])
    with TestClient(app_module.create_app(settings, launcher), base_url="http://127.0.0.1") as client:
        inside = sorted({route.path for route in client.app.routes if getattr(route, "path", "").startswith("/live")})
        assert inside, "the page is installed"
        for path in ("/", "/live/", "/live/page.js", *inside):
            for method in ("GET", "POST"):
                assert is_problem(client.request(method, path, follow_redirects=False), 401), path
        page = client.get("/", headers=bearer(tokens[1]["read"]))
        assert page.status_code == 200
        assert "<script" in page.text
        assert not re.search(r"<script(?![^>]*src=)[^>]*>", page.text), "no inline script"
        assert "'unsafe-inline'" not in page.headers["content-security-policy"].partition("style-src")[0]
        assert client.get("/live/state", headers=bearer(tokens[1]["read"])).status_code == 200
        assert is_problem(client.get("/api/v1/none", headers=bearer(tokens[1]["read"])), 404)


def test_others_are_not_served_without_tokens(out):
    with pytest.raises(SweeperError, match=r"Expected a file of tokens .*, got none for 0.0.0.0 \(--host\)"):
        app_module.create_app(ServiceSettings(out=out, host="0.0.0.0"))


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "", "localhost.evil.example", "127.0.0.1.evil")],
)
def test_only_addresses_of_this_machine_alone_are_local(host, local):
    assert is_loopback(host) is local


def test_an_odd_host_is_no_name():
    assert host_of("[::1") == ""
    assert host_of("a:b@c") == "c"


def test_guessing_tokens_is_slowed_down(serve, tokens):
    client = serve(tokens=tokens[0], limits=Limits(requests_per_second=0.001, burst=5))
    tried = [client.get("/metrics", headers=bearer("guess")).status_code for _ in range(8)]
    assert tried.count(401) <= 5
    assert tried[-1] == 429
    assert client.get("/metrics", headers=bearer(tokens[1]["read"])).status_code == 200, "others are not"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("headers", [{}, bearer("guess")])
def test_who_is_refused_keeps_nobody_of_the_same_address_from_signing_in(headers, serve, tokens):
    client = serve(tokens=tokens[0], limits=Limits(requests_per_second=0.001, burst=5))
    tried = [client.get("/", headers=headers).status_code for _ in range(8)]
    assert (tried.count(401), tried[-1]) == (5, 429)
    assert [client.get("/healthz").status_code for _ in range(8)] == [200] * 8
    assert client.get("/login").status_code == 200
    assert log_in(client, tokens[1]["read"]).status_code == 303


def test_guessing_tokens_at_the_form_is_slowed_down(serve, tokens):
    client = serve(tokens=tokens[0], limits=Limits(requests_per_second=0.001, burst=5))
    assert [log_in(client, "guess").status_code for _ in range(6)] == [401] * 5 + [429]


def test_a_token_made_while_the_service_runs_opens(guarded, tokens):
    assert guarded.get("/metrics", headers=bearer(make_token(tokens[0], Role.READ, 1, "ada"))).status_code == 200
