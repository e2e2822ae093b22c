import re
import time
from importlib.metadata import entry_points

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from dashboards import live
from dashboards.live import server
from dashboards.live.resources import Resources
from dashboards.live.skeleton import document
from sweeper.errors import PickError
from sweeper.service.app import create_app
from sweeper.service.security.tokens import Role, make_token
from sweeper.service.settings import Limits, ServiceSettings

from .conftest import ENDED

STATE = "/live/state"
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


def loaded(client):
    """What the page loads: its scripts, styles and pictures."""
    page = client.get("/").text
    return [found for found in re.findall(r'(?:src|href|content)="(/[^"]*)"', page) if not re.match(r"/(\?|$)", found)]


def test_the_service_finds_the_page_by_its_entry_point():
    (entry,) = entry_points(group="sweeper.pages", name="live")
    assert entry.load() is live.mount


def test_the_page_has_no_inline_script_and_loads_everything_from_here(client):
    page = client.get("/").text
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == 1
    for attributes, content in scripts:
        assert 'src="/live/' in attributes
        assert not content
    assert all(link.startswith("/live/") for link in loaded(client))
    assert not re.search(r"\son\w+=|javascript:|https?:", page)


def test_what_the_page_names_is_there(client):
    assert len(loaded(client)) == 4
    for link in loaded(client):
        answer = client.get(link, headers=GZIP)
        assert answer.status_code == 200, link
        assert answer.content


def test_our_own_files_are_compressed_once_and_kept_by_browsers_until_they_change(client):
    paths = [path for path in loaded(client) if re.search(r"\?v=[0-9a-f]{12}$", path)]
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


@pytest.mark.long
def test_the_state_of_the_page_names_what_to_fetch(client):
    answer = client.get(f"{STATE}?sweep={ENDED}")
    assert answer.headers["cache-control"] == "private, no-store"
    found = answer.json()
    for address in found["resources"].values():
        assert client.get(address).status_code == 200
    assert client.get(found["resources"]["figure-front"]).json()["data"]
    assert found["filters"][1]["label"] == "accuracy ≥ any"


def test_a_page_that_shows_everything_is_sent_nothing(client):
    tag = client.get(f"{STATE}?sweep={ENDED}").headers["etag"]
    again = client.get(f"{STATE}?sweep={ENDED}", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(f"{STATE}?sweep={ENDED}&tab=price", headers={"If-None-Match": tag}).status_code == 200


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


def test_the_page_names_every_control_for_who_does_not_see_it():
    page = document("1")
    for name in ("space", "axis"):
        assert f'role="group" aria-labelledby="label-{name}"' in page
    for name in ("radius", "max-epsilon", "minimum-0"):
        assert re.search(rf'<label id="label-{name}" for="{name}">.*<input[^>]* id="{name}"', page)


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
        assert client.get(f"{STATE}?sweep={ENDED}").json()["state"] == "completed"
        links = re.findall(r'href="(/api[^"]*)"', client.get(f"/live/part/exports?sweep={ENDED}").text)
        assert len(links) == 11
        for link in links:
            if not re.search("png|svg|pdf|papers", link):  # pictures need a browser, papers a model
                assert client.get(link.replace("&amp;", "&")).status_code == 200, link

    def test_nothing_is_open_without_a_token(self, serve, tmp_path):
        tokens = tmp_path / "tokens.json"
        token = make_token(tokens, Role.READ, 1, "ada")
        client = serve(tokens=tokens)
        paths = ["/", "/live/page.js", "/live/part/sweeps", f"/live/figure/front?sweep={ENDED}", STATE]
        for path in paths:
            assert client.get(path).status_code == 401, path
        reader = {"Authorization": f"Bearer {token}"}
        for path in paths:
            assert client.get(path, headers=reader).status_code == 200, path

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/live/nothing", 404),
            ("GET", "/live/", 404),
            ("POST", "/live/figure/front", 405),
            ("POST", STATE, 405),
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
        monkeypatch.setattr(server, "show_view", lambda *_: 1 / 0)
        with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
            answer = client.get(STATE)
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


@pytest.mark.sampled(4)
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
