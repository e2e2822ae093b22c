import json
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

pytest.importorskip("mcp")

HEADERS = {"Accept": "application/json, text/event-stream"}
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "a client", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True)
class Told:
    """What a tool answered."""

    content: dict[str, Any] | None
    error: str | None


def ask(client, method, params, headers=None, *, modern=False):
    """Send one request of the protocol to a service, and return its answer over HTTP."""
    named = {"Mcp-Method": method, **({"Mcp-Name": params["name"]} if "name" in params else {})}
    era = {"MCP-Protocol-Version": MODERN, **named} if modern else {}
    content = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **({"_meta": META} if modern else {})}}
    return client.post("/mcp", json=content, headers={**HEADERS, **era, **(headers or {})})


def use(client, name, arguments, headers=None, *, modern=False):
    """Call a tool of a service over HTTP, and return what it answered."""
    answer = ask(client, "tools/call", {"name": name, "arguments": arguments}, headers, modern=modern)
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    (block,) = result["content"]
    if result["isError"]:
        return Told(None, block["text"])
    assert json.loads(block["text"]) == result["structuredContent"]
    return Told(result["structuredContent"], None)


@pytest.fixture
def door(serve):
    """A service of this machine alone with the door for automatic clients."""
    return serve(mcp=True)


@pytest.fixture
def tool(door):
    """Call a tool as a user of this machine; what it answers is as it is described."""
    schemas = {one["name"]: one["outputSchema"] for one in ask(door, "tools/list", {}).json()["result"]["tools"]}

    def call(name, **arguments):
        told = use(door, name, arguments)
        if told.content is not None:
            jsonschema.validate(told.content, schemas[name])
        return told

    return call


@pytest.fixture
def supervisor_of(door):
    """What starts and stops the sweeps of the service."""
    return door.app.state.parts.supervisor
