"""The account from its opening to its end, by the commands of its page: what an owner, a new user and an office do."""

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

from sweeper.cli.main import main
from sweeper.papers.annexes import EDPB, NIST
from sweeper.service import serving
from sweeper.service.app import create_app
from tests.factories import registry_validator
from tests.sweeper.conftest import bare, in_process, untracked  # noqa: F401  # what makes a sweep short

pytestmark = pytest.mark.long
PAGE = Path(__file__).resolve().parents[1] / "docs" / "account.md"
BOUND = "costs epsilon 3.1 at delta 0.0001 together"


def drill():
    """The spec of the page, and its commands, each with whether it is refused."""
    (section,) = re.findall(r"^## From opening to closing$(.*?)^## ", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    (spec,) = re.findall(r"```yaml\n(.*?)```", section, flags=re.DOTALL)
    (block,) = re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL)
    lines = [line.removeprefix("$ sweeper ") for line in block.splitlines()]
    return spec, [(shlex.split(line.partition("  # ")[0]), "# refused" in line) for line in lines]


@pytest.fixture
def look(monkeypatch):
    """The page of an account, which `sweeper serve` leaves here instead of serving until a signal."""
    pages = []

    def serve(settings, _launcher=None, **_):
        with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
            pages.append(client.get("/live/part/account?account=clinic").text)
            pages.append(client.get("/live/part/verdict?account=clinic").text)

    monkeypatch.setattr(serving, "serve", serve)
    return pages


@pytest.mark.usefixtures("bare", "in_process", "untracked")
def test_the_commands_of_the_page_open_spend_file_raise_share_and_close(tmp_path, monkeypatch, capsys, look):
    monkeypatch.chdir(tmp_path)
    spec, commands = drill()
    Path("first.yaml").write_text(spec)
    said = []
    for arguments, is_refused in commands:
        given = [str(path) for one in arguments for path in (sorted(Path().glob(one)) if one.endswith("*") else [one])]
        with pytest.raises(SystemExit) as ended:
            main(given)
        told = capsys.readouterr()
        assert (ended.value.code not in (None, 0)) == is_refused, (given, told)
        said.append(told.err if is_refused else told.out)
    refused = [text for text, (_, is_refused) in zip(said, commands, strict=True) if is_refused]
    for sentence, text in zip(("to 1.32, the most that fits", "the share of ben", "is closed"), refused, strict=True):
        assert sentence in text
        assert text.count("\n") == 1
    (sentence,) = re.findall(r"```text\n(Expected a sweep that .*)\n```", PAGE.read_text())
    assert sentence in refused[0]
    (shown,) = (text for text, (given, _) in zip(said, commands, strict=True) if given[:2] == ["account", "show"])
    assert "first-" in shown
    assert "second-" in shown
    assert "third-" not in shown
    account, verdict = look
    assert "second-" in account
    assert "erified" in verdict
    assert "verified: " in said[-3]
    check_files()


def check_files():
    """The filed card and its exports keep to their forms, and state the claim of the account beside the price."""
    card = json.loads(Path("filed/card.json").read_text())
    assert any(BOUND in condition for condition in card["conditions"])
    record = yaml.safe_load(Path("registry.yaml").read_text())
    registry_validator().validate(record)
    for name, chapters in (("nist", NIST), ("edpb", EDPB)):
        text = Path(f"annex-{name}.md").read_text()
        assert re.findall(r"^## \d+\. (.+)$", text, flags=re.MULTILINE) == list(chapters)
        assert BOUND in text
    assert BOUND in str(record)
    (front,) = Path("sweeps-out").glob("second-*/front.csv")
    assert {(row["account"], row["account.epsilon"]) for row in csv.DictReader(front.read_text().splitlines())} == {
        ("clinic", "3.1")
    }
