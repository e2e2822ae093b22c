"""Every JSON answer has a schema in the description of the API, and is as the schema says."""

import json

import jsonschema
import pytest
from starlette.testclient import TestClient

from sweeper.service import app as app_module
from sweeper.service.settings import ServiceSettings

from ..conftest import DONE, SPEC, YAML, FakeLauncher

URL = f"/api/v1/sweeps/{DONE}"
OTHERS = {
    ("get", "/metrics"): "text/plain",
    ("get", "/api/v1/sweeps/{sweep}/events"): "text/event-stream",
    ("get", "/api/v1/sweeps/{sweep}/models/{trial}/{epoch}"): "application/octet-stream",
    ("get", "/api/v1/sweeps/{sweep}/papers"): "application/zip",
}
ASKED = [
    ("GET", "/api/v1/sweeps", "/api/v1/sweeps", {}),
    ("POST", "/api/v1/sweeps", "/api/v1/sweeps", {"content": SPEC, "headers": YAML}),
    ("GET", "/api/v1/sweeps/{sweep}", URL, {}),
    ("GET", "/api/v1/sweeps/{sweep}/points", f"{URL}/points", {}),
    ("GET", "/api/v1/sweeps/{sweep}/trials", f"{URL}/trials", {}),
    ("GET", "/api/v1/sweeps/{sweep}/rehearsals", f"{URL}/rehearsals", {}),
    ("GET", "/api/v1/sweeps/{sweep}/front", f"{URL}/front", {}),
    ("GET", "/api/v1/sweeps/{sweep}/pick", f"{URL}/pick", {}),
    ("GET", "/api/v1/sweeps/{sweep}/card", f"{URL}/card?format=json", {}),
    ("POST", "/api/v1/sweeps/{sweep}/extend", f"{URL}/extend", {"json": {"trials": 9}}),
    ("POST", "/api/v1/sweeps/{sweep}/resume", f"{URL}/resume", {}),
    ("POST", "/api/v1/sweeps/{sweep}/trials/{trial}/note", f"{URL}/trials/t0001/note", {"json": {"text": "good"}}),
    (
        "POST",
        "/api/v1/sweeps/{sweep}/trials/{trial}/tag",
        f"{URL}/trials/t0001/tag",
        {"json": {"key": "k", "value": "v"}},
    ),
    ("DELETE", "/api/v1/sweeps/{sweep}", URL, {}),
    ("POST", "/api/v1/check", "/api/v1/check", {"content": SPEC, "headers": YAML}),
    ("GET", "/api/v1/data", "/api/v1/data", {}),
    ("GET", "/api/v1/schema", "/api/v1/schema", {}),
    ("GET", "/healthz", "/healthz", {}),
    ("GET", "/api/v1/sweeps/{sweep}", "/api/v1/sweeps/none", {}),
]


@pytest.fixture(scope="module")
def described(tmp_path_factory):
    settings = ServiceSettings(out=tmp_path_factory.mktemp("out"))
    with TestClient(app_module.create_app(settings, FakeLauncher()), base_url="http://127.0.0.1") as client:
        return client.get("/api/openapi.json").json()


def schemas(described):
    """The schema of each answer that succeeds, by operation and media type."""
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                if status.startswith("2") and status != "204":
                    yield (method, path), answer["content"]


def test_every_json_answer_has_a_schema(described):
    found = dict(schemas(described))
    assert len(found) == 31
    for operation, content in found.items():
        if operation in OTHERS:
            assert list(content) == [OTHERS[operation]]
        else:
            assert set(content["application/json"]["schema"]) & {"$ref", "anyOf", "type"}, operation


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("method", "path", "url", "more"), ASKED)
def test_answers_are_as_they_are_described(method, path, url, more, client, make_sweep, described):
    make_sweep()
    answer = client.request(method, url, **more)
    answers = described["paths"][path][method.lower()]["responses"]
    said = answers.get(str(answer.status_code)) or answers[f"{answer.status_code // 100}XX"]
    media_type = answer.headers["content-type"]
    schema = said["content"][media_type]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": described["components"]}).validate(answer.json())
    assert (media_type == "application/json") is (answer.status_code < 300)


def test_an_infinite_price_is_a_text_that_the_schema_allows(client, make_sweep, described):
    path = make_sweep().front
    front = json.loads(path.read_text())
    front["ledger"]["everything"]["epsilon"] = "Infinity"
    path.write_text(json.dumps(front))
    for ledger in (client.get(URL).json()["front"]["ledger"], client.get(f"{URL}/front").json()["ledger"]):
        assert ledger["everything"]["epsilon"] == "Infinity"
        schema = {"$ref": "#/components/schemas/PriceFacts", "components": described["components"]}
        jsonschema.Draft202012Validator(schema).validate(ledger["everything"])
