"""A model of two classes of a table, as ``sweeper pick`` leaves one, and parties with rows of it."""

import json
import socket
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import uvicorn

import clipless
from clipless.datasets import input_format
from clipless.federated.primitives import Identity
from sweeper.federated.connection import Conversation
from sweeper.federated.evaluation import ask
from sweeper.federated.federation import ANALYST, SERVERS, Federation, parse_federation
from sweeper.federated.serving import create_app
from sweeper.results.models.predict import CARD_NAME, CONFIG_NAME, MODEL_NAME
from sweeper.store.input_format import write_input
from tests.factories import draw_few_bands

ROWS = 60


def table(folder, name, rows, seed):
    """Write a table of two columns and a label that depends on them; return its path."""
    rng = np.random.default_rng(seed)
    left, right = rng.uniform(0, 9, rows), rng.uniform(0, 9, rows)
    label = np.where(left + rng.normal(0, 2, rows) > right, "yes", "no")
    lines = [f"{a:.3f},{b:.3f},{c}" for a, b, c in zip(left, right, label, strict=True)]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(["left,right,won", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A folder with a model that decides by left - right."""
    folder = tmp_path_factory.mktemp("picked")
    path = table(folder, "mine", 20, 0)
    declared = 'source: s\ntarget: {column: won, classes: ["no", "yes"]}\nothers: {low: 0, high: 9, missing: 0}\n'
    (folder / "ranges.yaml").write_text(declared, encoding="utf-8")
    form = input_format(str(path), ranges=str(folder / "ranges.yaml"))
    network = clipless.Network([clipless.layers.InputBall(2.0), clipless.layers.Dense(2, 2)], (2,))
    with torch.no_grad():
        network.layers[1].weight.copy_(torch.tensor([[-1.0, 1.0], [1.0, -1.0]]))
    clipless.save(network, folder / MODEL_NAME)
    write_input(folder, form)
    (folder / CARD_NAME).write_text(json.dumps({"exploratory": False}), encoding="utf-8")
    (folder / CONFIG_NAME).write_text(
        json.dumps({"training": {"loss": {"name": "tau-cce", "temperature": 1.0}}}), encoding="utf-8"
    )
    return folder


@pytest.fixture
def parties(tmp_path):
    """Five tables by name of their party."""
    return {name: table(tmp_path, name, ROWS, seed) for seed, name in enumerate(("ann", "bob", "cat", "dan", "eva"))}


NAMES = ("ann", "bob", "cat", "dan", "eva")
LOUD = 400.0  # an epsilon at which all noise is zero


@dataclass
class Everybody:
    """A federation with servers that listen in threads of this process, and everybody's keys."""

    federation: Federation
    identities: dict
    servers: list

    def connection(self, name, server=0, identity=None):
        server = self.federation.servers[server].name
        return Conversation.to(self.federation, server, name, identity or self.identities[name])

    def result(self):
        return ask(self.federation, self.identities[ANALYST])


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Bands of released curves, which no test here measures, are simulated with few draws."""
    draw_few_bands(monkeypatch)


@pytest.fixture
def start():
    """A function that starts the servers of a federation."""
    with ExitStack() as running:

        def begin(protocol, **changes):
            content = {
                "protocol": protocol,
                "epsilon": LOUD,
                "thresholds": 20,
                "levels": 6,
                "target": "won",
                "wait_seconds": 20.0,
                "servers": [{"name": f"s{n}"} for n in range(SERVERS[protocol])],
                "parties": [{"name": name, "rows": ROWS} for name in NAMES],
                **changes,
            }
            owners = [*content["servers"], *content["parties"]]
            identities = {owner["name"]: Identity() for owner in owners} | {ANALYST: Identity()}
            for owner in owners:
                owner["key"] = identities[owner["name"]].public.hex()
            content["analyst"] = identities[ANALYST].public.hex()
            federation = parse_federation(content, "the test's")
            urls, apps = [], []
            for server in federation.servers:
                apps.append(create_app(federation, server.name, identities[server.name]))
                urls.append(running.enter_context(listening(apps[-1])))
            servers = [
                server.model_copy(update={"url": url}) for server, url in zip(federation.servers, urls, strict=True)
            ]
            return Everybody(federation.model_copy(update={"servers": servers}), identities, apps)

        yield begin


@contextmanager
def listening(app):
    """Serve an application from a thread."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)
