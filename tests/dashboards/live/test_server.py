import json
import re
import threading
import time
from importlib.metadata import entry_points

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from dashboards import live
from dashboards.live import _backend, page_state
from dashboards.live.page_state import PageState
from dashboards.live.resources import Resources
from dashboards.live.skeleton import layout
from sweeper.errors import PickError
from sweeper.service.app import create_app
from sweeper.service.security.tokens import Role, make_token
from sweeper.service.settings import Limits, ServiceSettings

from .conftest import ENDED

UPDATE = "/live/_dash-update-component"
GZIP = {"accept-encoding": "gzip"}


@pytest.fixture
def app(catalog):
    app = FastAPI()
    live.mount(app, catalog)
    return app


@pytest.fixture
def client(app):
    with TestClient(app) as client:
        yield client


def values(props):
    return [{"id": id_, "property": property_, "value": value} for (id_, property_), value in props.items()]


def asked(search="", trigger="url.search", known=None):
    """What the browser posts."""
    controls = {("url", "search"): search, ("tick", "n_intervals"): 0, ("click", "data"): None}
    controls |= {(name, "value"): value for name, value in page_state.values_of(
        page_state.View(), page_state.PageState()).items()}  # fmt: skip
    outputs = [("url", "search"), ("shown", "data"), *((name, "value") for name in page_state.CONTROLS)]
    outputs += [("radius", "marks"), ("radius", "max"), *((f"label-{n}", "children") for n in page_state.LABELLED)]
    return {
        "output": f"..{'...'.join('.'.join(one) for one in outputs)}..",
        "outputs": [{"id": id_, "property": property_} for id_, property_ in outputs],
        "inputs": values(controls),
        "state": values({("shown", "data"): known}),
        "changedPropIds": [trigger],
    }


def test_the_service_finds_the_page_by_its_entry_point():
    (entry,) = entry_points(group="sweeper.pages", name="live")
    assert entry.load() is live.mount


def test_the_page_has_no_inline_script_and_loads_everything_from_here(client):
    page = client.get("/").text
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) > 5
    for attributes, content in scripts:
        assert ('src="/live/' in attributes and not content) or 'type="application/json"' in attributes
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(link.startswith("/live/") for link in links)
    assert not re.search(r"\son\w+=|javascript:", page)


def test_what_the_page_names_is_there(client):
    page = client.get("/").text
    for link in re.findall(r'(?:src|href)="([^"]*)"', page):
        answer = client.get(link, headers=GZIP)
        assert answer.status_code == 200, link
        assert answer.content
    for part in ("layout", "dependencies"):
        assert client.get(f"/live/_dash-{part}").status_code == 200


def test_scripts_are_compressed_once_and_kept_by_browsers(client):
    path = re.search(r'src="(/live/[^"]*react-dom[^"]*)"', client.get("/").text).group(1)
    first = client.get(path, headers=GZIP)
    assert first.headers["content-encoding"] == "gzip"
    assert "max-age=31536000" in first.headers["cache-control"]
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == first.content == client.get(path, headers=GZIP).content


def test_a_script_is_compressed_once_under_whatever_fingerprint_and_not_on_the_event_loop(client, monkeypatch):
    path = re.search(r'src="(/live/[^"]*react-dom[^"]*)"', client.get("/").text).group(1)
    packed, original = [], _backend._packed

    def spy(plain):
        packed.append(threading.current_thread().name)
        return original(plain)

    monkeypatch.setattr(_backend, "_packed", spy)
    answers = [client.get(re.sub(r"\.v[^/]*m[0-9a-f]+\.", f".v{i}m{i}.", path), headers=GZIP) for i in range(5)]
    assert {answer.content for answer in answers} == {client.get(path, headers=GZIP).content}
    (name,) = packed
    assert "worker thread" in name


def test_a_script_without_a_fingerprint_is_not_sent_again(client):
    page = client.get("/").text
    path = re.sub(r"\.v[^/]*m[0-9a-f]+\.", ".", re.search(r'src="(/live/[^"]*react-dom[^"]*)"', page).group(1))
    tag = client.get(path, headers=GZIP).headers["etag"]
    assert client.get(path, headers=GZIP | {"if-none-match": tag}).status_code == 304
    assert client.get(path, headers=GZIP | {"if-none-match": "other"}).status_code == 200
    assert client.get(path, headers={"accept-encoding": "identity", "if-none-match": tag}).status_code == 304


def test_our_own_files_are_compressed_once_and_kept_by_browsers_until_they_change(client):
    paths = re.findall(r'"(/live/[^"]*\?v=[0-9a-f]{12})"', client.get("/").text)
    assert {path.partition("?")[0] for path in paths} == {
        f"/live/{name}" for name in ("page.css", "page.js", "plotly.js")
    }
    for path in paths:
        packed = client.get(path, headers=GZIP)
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["cache-control"] == "public, max-age=31536000, immutable"
        plain = client.get(path, headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == packed.content
        assert "Accept-Encoding" in plain.headers["vary"]
        assert "Accept-Encoding" in packed.headers["vary"]


def test_style_and_script_hold_both_themes(client):
    style, script = client.get("/live/page.css").text, client.get("/live/page.js").text
    assert ':root[data-theme="dark"]' in style
    assert '@media (prefers-color-scheme: dark) { :root:not([data-theme="light"])' in style
    assert script.startswith("const SWEEPER_LIGHT = {")
    assert "const SWEEPER_DARK = {" in script


@pytest.mark.parametrize(
    "path", ["/nothing", "/live/nothing", "/live/docs", "/live/openapi.json", "/docs2", "/live/assets/x"]
)
def test_unknown_paths_stay_unknown(client, path):
    assert client.get(path).status_code == 404


def test_there_is_no_web_socket(app):
    paths = [getattr(route, "path", "") for route in app.routes]
    assert not any("ws" in path for path in paths)
    from starlette.websockets import WebSocketDisconnect

    with TestClient(app) as client, pytest.raises((WebSocketDisconnect, AssertionError)):
        client.websocket_connect("/live/_dash-ws-callback", headers={"origin": "http://testserver"}).__enter__()


def test_a_change_of_the_address_is_answered_with_addresses(client):
    answer = client.post(UPDATE, json=asked(f"?sweep={ENDED}"))
    assert answer.status_code == 200
    shown = answer.json()["response"]["shown"]["data"]
    for address in shown["resources"].values():
        assert client.get(address).status_code == 200
    assert json.loads(client.get(shown["resources"]["figure-front"]).text)["data"]


def test_a_tick_without_news_says_nothing(client):
    first = client.post(UPDATE, json=asked(f"?sweep={ENDED}")).json()["response"]["shown"]["data"]
    again = client.post(UPDATE, json=asked(f"?sweep={ENDED}", "tick.n_intervals", first))
    assert again.json()["response"] == {}
    assert len(again.content) < 50


def test_other_requests_are_answered_while_a_sweep_is_read(client, monkeypatch):
    seen = []
    original = page_state.update

    def spy(*arguments):
        seen.append(threading.current_thread().name)
        return original(*arguments)

    monkeypatch.setattr(page_state, "update", spy)
    assert client.post(UPDATE, json=asked()).status_code == 200
    (name,) = seen
    assert name.startswith("asyncio_")


def test_resources_are_compressed_for_who_takes_it_and_kept_by_nobody(client):
    path = f"/live/figure/front?sweep={ENDED}"
    packed = client.get(path, headers=GZIP)
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()
    assert packed.headers["cache-control"] == "private, no-store"


def test_a_file_is_a_download(client):
    answer = client.get(f"/live/file/config.json?sweep={ENDED}")
    assert re.fullmatch(rf'attachment; filename="{ENDED}-t\d+-\d+-config.json"', answer.headers["content-disposition"])


def test_errors_of_sweeps_are_the_applications_to_answer(app):
    with TestClient(app) as client, pytest.raises(PickError):
        client.get(f"/live/file/config.json?sweep={ENDED}&max-epsilon=0.0001")


def test_the_layout_names_every_control_for_who_does_not_see_it():
    text = str(layout())
    for name in ("space", "axis", "radius", "max-epsilon", "minimum-0"):
        assert f"'aria-labelledby': 'label-{name}'" in text or f"aria-labelledby='label-{name}'" in text, name


class TestBehindTheService:
    """The page in the service that it is made for."""

    @pytest.fixture
    def serve(self, out):
        clients = []

        def start(**settings):
            app = create_app(ServiceSettings(out=out, limits=Limits(requests_per_second=0), **settings))
            client = TestClient(app, base_url="http://127.0.0.1").__enter__()
            clients.append(client)
            return client

        yield start
        for client in clients:
            client.__exit__(None, None, None)

    def test_the_page_and_its_parts_are_served(self, serve):
        client = serve()
        assert client.get("/").status_code == 200
        assert client.post(UPDATE, json=asked(f"?sweep={ENDED}")).status_code == 200
        links = re.findall(r'href="(/api[^"]*)"', client.get(f"/live/part/exports?sweep={ENDED}").text)
        assert len(links) == 7
        for link in links:
            if not re.search("png|svg|pdf", link):
                assert client.get(link.replace("&amp;", "&")).status_code == 200, link

    def test_nothing_is_open_without_a_token(self, serve, tmp_path):
        tokens = tmp_path / "tokens.json"
        token = make_token(tokens, Role.READ, 1)
        client = serve(tokens=tokens)
        paths = ["/", "/live/page.js", "/live/part/sweeps", f"/live/figure/front?sweep={ENDED}", "/live/_dash-layout"]
        for path in paths:
            assert client.get(path).status_code == 401, path
        assert client.post(UPDATE, json=asked()).status_code == 401
        reader = {"Authorization": f"Bearer {token}"}
        for path in paths:
            assert client.get(path, headers=reader).status_code == 200, path
        assert client.post(UPDATE, json=asked(), headers=reader).status_code == 200

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (b"", 400),
            (b"x", 400),
            (b"[]", 400),
            (b"{}", 400),
            (b"{" * 100_000, 400),
            (json.dumps(asked() | {"output": "..nope.."}), 400),
            (json.dumps(asked() | {"output": ["x"]}), 400),
            (json.dumps(asked() | {"outputs": [{}]}), 400),
            (json.dumps(asked() | {"inputs": 5}), 400),
            (json.dumps(asked() | {"inputs": asked()["inputs"][1:]}), 400),
            (json.dumps(asked() | {"state": [5]}), 400),
            (json.dumps(asked() | {"changedPropIds": [{}]}), 400),
            ([b"x" * 2**16] * 17, 413),
        ],
    )
    def test_a_body_that_no_page_sends_is_refused(self, serve, body, status):
        client = serve()
        content = iter(body) if isinstance(body, list) else body
        answer = client.post(UPDATE, content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"].startswith("Expected a ")

    @pytest.mark.parametrize("known", [5, [], {"nope": 1}, PageState().to_json() | {"names": 5}])
    def test_a_page_that_says_odd_things_of_itself_is_shown_as_one_that_has_just_come(self, serve, known):
        shown = serve().post(UPDATE, json=asked(f"?sweep={ENDED}", known=known)).json()["response"]["shown"]["data"]
        assert shown["resources"]

    @pytest.mark.parametrize(
        ("control", "value"),
        [("space", 5), ("axis", 5), ("radius", float("inf")), ("max-epsilon", "x"), ("minimum-0", 10**400)],
    )
    def test_a_control_that_says_odd_things_asks_for_nothing(self, serve, control, value):
        client = serve()
        shown = client.post(UPDATE, json=asked(f"?sweep={ENDED}")).json()["response"]["shown"]["data"]
        body = asked(f"?sweep={ENDED}", known=shown)
        (said,) = (one for one in body["inputs"] if one["id"] == control)
        said["value"] = value
        answer = client.post(UPDATE, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert answer.status_code == 200
        assert "url" not in answer.json()["response"]

    def test_an_address_that_is_no_text_leads_to_the_list(self, serve):
        assert serve().post(UPDATE, json=asked(5)).json()["response"]["shown"]["data"]["title"] == "Sweeps"

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/live/nothing", 404),
            ("GET", "/live/_dash-component-suites/os/path.py", 404),
            ("GET", "/live/_dash-component-suites/dash/dash.py", 404),
            ("POST", "/live/figure/front", 404),
            ("GET", UPDATE, 405),
            ("DELETE", "/", 405),
        ],
    )
    def test_what_the_page_has_not_is_refused_in_the_one_shape(self, serve, method, path, status):
        answer = serve().request(method, path)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
        assert ("allow" in answer.headers) is (status == 405)

    def test_an_error_of_the_page_is_told_to_the_log_alone(self, out, monkeypatch, caplog):
        app = create_app(ServiceSettings(out=out))
        monkeypatch.setattr(page_state, "update", lambda *_: 1 / 0)
        with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
            answer = client.post(UPDATE, json=asked())
        assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
        assert any("ZeroDivisionError" in str(getattr(record, "fields", "")) for record in caplog.records)

    def test_errors_have_the_one_shape_and_name_no_folder(self, serve, out):
        client = serve()
        answer = client.get("/live/part/head?sweep=nobody")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        answer = client.get(f"/live/file/card.md?sweep={ENDED}")
        assert answer.status_code == 409
        assert str(out) not in answer.text


@pytest.mark.parametrize(
    ("search", "made"),
    [
        (f"?sweep={ENDED}", ["front"]),
        (f"?sweep={ENDED}&axis=linear", ["front"]),
        ("", []),
        (f"?sweep={ENDED}&tab=trials", []),
        (f"?sweep={ENDED}&view=3d", []),
        (f"?sweep={ENDED}&trial=t0001", []),
        (f"?sweep={ENDED}&do=stop", []),
        ("?sweep=none", ["front"]),
    ],
)
def test_while_the_browser_reads_the_page_its_first_figure_is_made(search, made, app, monkeypatch):
    asked = []
    get = Resources.get

    def noting(self, kind, name, view):
        asked.append(name)
        return get(self, kind, name, view)

    monkeypatch.setattr(Resources, "get", noting)
    with TestClient(app) as client:
        assert client.get(f"/{search}").status_code == 200
        until = time.monotonic() + 60
        while asked != made and time.monotonic() < until:
            time.sleep(0.01)
    assert asked == made
