"""What clients see of a private selection that runs: that it does, and nothing that depends on its candidates."""

import re
import shutil

import pytest

from sweeper.records import SweepStatus
from sweeper.specification.spec import Spec
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder, beside

NAME = "private-20250101-000000"


@pytest.fixture
def selecting(out, content, make_sweep):
    """A folder of the service whose selection runs, and the hidden one with two candidates beside it."""
    other = make_sweep("other-20250101-000001")
    public = SweepFolder(out / NAME)
    public.path.mkdir()
    private = content | {
        "search": {"selection": "private", "sampler": "random"},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }
    spec = Spec.from_mapping(private)
    public.spec.write_text(spec.to_yaml())
    public.write_manifest(
        Manifest(
            name="private",
            spec=spec.to_plain(),
            source="s",
            status=SweepStatus.RUNNING,
            reason="selecting privately",
            started="20250101-000000",
        )
    )
    hidden = beside(public.path)
    shutil.copytree(other.path, hidden)
    return public, SweepFolder(hidden)


PATHS = ("", "/points", "/front", "/front?format=json", "/pick", "/card", "/models/t0001/1")


def answers(client):
    """Status and text of every answer about the sweep, without the number of the request."""
    found = {path: client.get(f"/api/v1/sweeps/{NAME}{path}") for path in PATHS}
    found["list"] = client.get("/api/v1/sweeps")
    return {path: (one.status_code, re.sub(r'"request_id": "\w+"', "", one.text)) for path, one in found.items()}


def test_no_answer_depends_on_what_the_candidates_do(client, selecting):
    _, hidden = selecting
    before = answers(client)
    assert before[""][0] == 200
    assert all(status < 500 for status, _ in before.values())
    assert "selecting privately" in before[""][1]
    assert not [path for path, (_, text) in before.items() if path != "list" and "t0001" in text]
    shutil.rmtree(hidden.path)
    hidden.path.mkdir()
    assert answers(client) == before


def test_the_hidden_folder_has_no_name_in_the_service(client, selecting):
    _, hidden = selecting
    assert client.get(f"/api/v1/sweeps/{hidden.path.name}").status_code == 422
    assert hidden.path.name not in client.get("/api/v1/sweeps").text
