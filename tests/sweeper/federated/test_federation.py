"""The file of a federation: what it takes, what everybody has to agree on, and how epsilon is divided."""

import pytest

from clipless.errors import FederationError
from clipless.federated.primitives import Identity
from sweeper.errors import SpecError, SweeperError
from sweeper.federated.federation import parse_federation, read_federation

KEYS = [Identity().public.hex() for _ in range(4)]
CONTENT = {
    "protocol": "function-sharing",
    "epsilon": 1,
    "servers": [
        {"name": "north", "url": "http://127.0.0.1:9001", "key": KEYS[0]},
        {"name": "south", "url": "http://127.0.0.1:9002", "key": KEYS[1]},
    ],
    "parties": [{"name": "ann", "rows": 10, "key": KEYS[2]}, {"name": "bob", "rows": 20, "key": KEYS[2]}],
    "analyst": KEYS[3],
}


def parse(**changes):
    return parse_federation({**CONTENT, **changes}, "file")


def test_a_file_is_read_and_its_data_lie_beside_it(tmp_path):
    path = tmp_path / "parties.yaml"
    path.write_text("protocol: curator\nepsilon: 2\nparties:\n  - {name: ann, rows: 3, data: ann.csv}\n")
    found = read_federation(path)
    assert (found.protocol, found.epsilon, found.parties[0].rows) == ("curator", 2.0, 3)
    assert found.parties[0].data == str(tmp_path / "ann.csv")
    assert found.is_local
    assert not parse().is_local


@pytest.mark.parametrize("curves", [["roc"], ["certified"], ["roc", "certified"]])
def test_epsilon_is_divided_among_the_curves(curves):
    releases = parse(curves=curves).releases
    assert [release.curve for release in releases] == curves
    assert sum(release.query.epsilon for release in releases) == 1.0
    assert all(len(release.thresholds) == 100 for release in releases)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"protocol": "shuffle"}, "protocol"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("inf")}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"parties": []}, "parties"),
        ({"parties": [{"name": "ann", "rows": 0}]}, "rows"),
        ({"parties": [{"name": "ann", "rows": 1}] * 2}, "different names"),
        ({"parties": [{"name": "analyst", "rows": 1}]}, "different names"),
        ({"servers": CONTENT["servers"][:1]}, "2 servers for the protocol function-sharing"),
        ({"curves": ["roc", "roc"]}, "each curve once"),
        ({"curves": []}, "curves"),
        ({"thresholds": 300, "levels": 8}, "fewer thresholds"),
        ({"analyst": "ab"}, "the public key of analyst"),
        ({"tresholds": 3}, "tresholds"),
        ({"colluding": -1}, "colluding"),
        ({"unit": "person", "target": None}, "a target, and another column than it for units"),
        ({"unit": "won", "target": "won"}, "a target, and another column than it for units"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused(changes, sentence):
    with pytest.raises(SpecError, match=sentence):
        parse(**changes)


def test_everything_but_addresses_and_paths_has_to_be_agreed_on():
    first = parse().digest
    moved = [{**server, "url": "http://127.0.0.1:1"} for server in CONTENT["servers"]]
    assert parse(servers=moved).digest == first
    assert parse(parties=[{**party, "data": "x.csv"} for party in CONTENT["parties"]]).digest == first
    others = [
        {"epsilon": 2},
        {"relation": "replace-one"},
        {"thresholds": 50},
        {"levels": 11},
        {"radius": 2},
        {"curves": ["roc"]},
        {"target": "won"},
        {"colluding": 1},
        {"needed": 2},
        {"analyst": KEYS[0]},
        {"parties": CONTENT["parties"][:1]},
        {"parties": [{**party, "rows": 11} for party in CONTENT["parties"]]},
    ]
    assert len({first, *(parse(**change).digest for change in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    "changes",
    [
        {"analyst": None},
        {"servers": []},
        {"parties": [{"name": "ann", "rows": 1}]},
        {"servers": [{**server, "url": None} for server in CONTENT["servers"]]},
    ],
)
def test_a_federation_without_keys_or_addresses_is_not_complete(changes):
    parse().check_complete()
    with pytest.raises(SweeperError, match="Expected keys and addresses of all who take part"):
        parse(**changes).check_complete()


def test_an_address_that_is_none_is_refused():
    servers = [{**server, "url": "ftp://x"} for server in CONTENT["servers"]]
    with pytest.raises(SweeperError, match="an address of north"):
        parse(servers=servers).check_complete()


def test_whoever_is_not_there_is_named():
    for ask in (parse().key_of, parse().server, parse().party):
        with pytest.raises(SweeperError, match="got 'eve'"):
            ask("eve")
    assert parse().rows_of(["ann", "bob"]) == 30


def test_a_roster_that_keeps_no_secrets_is_refused():
    assert parse().roster.needed == 2
    with pytest.raises(FederationError, match="more than half"):
        _ = parse(colluding=2).roster
