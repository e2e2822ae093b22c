"""The page about the service names every endpoint, state, limit and role; and no endpoint that there is not."""

import re
from pathlib import Path

from sweeper.records import SweepStatus
from sweeper.service.responses.exports import MOST_DRAWN
from sweeper.service.routes.public import MAX_FORM_BYTES
from sweeper.service.routes.read import FrontFormat
from sweeper.service.security.spec_policy import MAX_SPEC_BYTES
from sweeper.service.security.tokens import Role
from sweeper.service.settings import MEBIBYTE, Limits
from sweeper.service.supervision.states import FIRST_PAUSE_SECONDS, MOST_DEATHS, pause
from tests.sweeper.service.security.test_spec_policy import FREE_TEXT

TEXT = (Path(__file__).parents[4] / "docs" / "service.md").read_text(encoding="utf-8")


def test_every_endpoint_and_parameter_is_documented_and_nothing_else(client):
    described = client.get("/api/openapi.json").json()["paths"]
    known = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    assert known == set(re.findall(r"^\| `((?:GET|POST|DELETE) [^`]+)` \|", TEXT, flags=re.MULTILINE))
    for methods in described.values():
        for operation in methods.values():
            assert operation["description"]
            for parameter in operation.get("parameters", []):
                name = parameter["name"].strip("{}")
                assert name.lower() in TEXT.lower(), name


def test_states_formats_roles_and_keys_are_documented():
    for state in SweepStatus:
        assert f"`{state.value}`" in TEXT
    for format_ in FrontFormat.__args__:
        assert f"`{format_}`" in TEXT or f"format={format_}" in TEXT
    for role in Role:
        assert f"| `{role.value}` |" in TEXT
    for key in FREE_TEXT & {"data.name", "data.path", "data.ranges", "search.warm_start"}:
        assert f"`{key}`" in TEXT


def test_the_numbers_are_those_of_the_service():
    limits = Limits()
    assert (limits.body_bytes, MAX_SPEC_BYTES, MAX_FORM_BYTES) == (MEBIBYTE, 64 * 1024, 2000)
    assert f"{limits.streams_per_client} of one client, {limits.streams} of all" in TEXT
    assert f"bursts of {limits.burst}" in TEXT
    assert f"| rows of a page | {limits.page} |" in TEXT
    assert f"drawn one at a time, {MOST_DRAWN - 1} wait" in TEXT
    assert f"| sweeps that wait | {limits.queued} |" in TEXT
    assert (FIRST_PAUSE_SECONDS, [pause(deaths) for deaths in (2, 3, 4)], MOST_DEATHS) == (2.0, [8.0, 32.0, 128.0], 5)
