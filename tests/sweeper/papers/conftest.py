import contextlib
import json
import shutil
from types import SimpleNamespace

import pytest

from clipless.federated.primitives import Identity
from sweeper.papers.files import hashes_of, sums_of
from sweeper.privacy.card.content import CardContent
from sweeper.privacy.card.make import Card
from sweeper.results.sweep import load
from sweeper.store.jsonl import to_text


@pytest.fixture(scope="session")
def signed(ran, tmp_path_factory):
    """What ``pick`` writes of a real sweep, signed, with the key; not to be changed."""
    identity, folder = Identity(), tmp_path_factory.mktemp("papers") / "out"
    load(ran.folder).pick().write(folder, identity=identity)
    return SimpleNamespace(folder=folder, identity=identity, public=identity.signing_public)


@pytest.fixture
def papers(signed, tmp_path):
    """A copy, to be spoiled freely."""
    return shutil.copytree(signed.folder, tmp_path / "out")


@pytest.fixture
def forge():
    """Write another card into a folder, with hashes and words that fit it; a signature stays that of the one before."""

    def write(folder, card):
        card = {**card, "files": hashes_of(folder)}
        (folder / "card.json").write_text(to_text(card, indent=2) + "\n", encoding="utf-8")
        with contextlib.suppress(ArithmeticError, ValueError):  # what cannot be said in words
            words = Card(CardContent.model_validate(card)).to_markdown()
            (folder / "card.md").write_text(words, encoding="utf-8")
        (folder / "SHA256SUMS").write_text(sums_of(folder), encoding="utf-8")

    return write


@pytest.fixture
def content(signed):
    """The content of the card, to be changed freely."""
    return json.loads((signed.folder / "card.json").read_text(encoding="utf-8"))


def score_noise_of(content):
    """What a card says of the noise of its scores where these are of private rows; to be changed freely."""
    return {
        "names": ["accuracy"],
        "noise_multiplier": 3.0,
        "apart": True,
        "std": {"validation": 0.015, "test": 0.01},
        "rows": {"validation": 100, "test": 200},
        "epochs": [content["guarantee"]["planned_epochs"]],
        "best_of": None,
        "curves": None,
        "of_the_trial": content["guarantee"]["chosen_afterwards"],
    }
