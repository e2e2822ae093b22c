"""What a refusal says would fit is accepted when it is written into that spec, and little more is refused."""

import datetime
import re

import pytest

import clipless
from clipless.privacy.events import Relation
from sweeper.account import store as store_module
from sweeper.account.account import Account
from sweeper.account.entries import Share
from sweeper.account.owner import open_account
from sweeper.planning.account_fit import find_fit
from sweeper.planning.account_plan import make_reservation
from sweeper.planning.account_quote import quote_of
from sweeper.planning.loaded import LoadedSpec
from sweeper.specification.addresses import parse_address
from sweeper.specification.spec import Spec
from tests.sweeper.account.accounts import begin_quickly

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
RELATION = Relation.ADD_OR_REMOVE_ONE
PUBLIC = {"name": "digits"}
PRIVATE = {"name": "breast_cancer", "evaluation": "private"}
SHORT = {"epochs": 2, "batch_size": 64, "learning_rate": {"log": [0.02, 0.1]}}
ONE = {"trials": 1}
BUDGET = "privacy.sweep_epsilon"


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "_begin_by_hand", begin_quickly)
    return parse_address(f"{tmp_path}/accounts.db#clinic")


def asked(address, data, privacy, search, *, epsilon, training=SHORT, shares=(), relation=RELATION):
    """Open an account, and return how one asks it what a spec would take, and a spec that asks too much."""
    terms = {"unit": "row", "relation": relation, "epsilon": epsilon, "delta": 1e-4, "shares": shares}
    open_account(address, **terms, by="owner", at=NOW)
    content = {"name": "small", "data": data, "model": {"architecture": "mlp", "width": 8}, "training": training}
    spec = Spec.from_mapping(
        content | {"privacy": {"delta": 1e-4, "account": str(address), **privacy}, "search": search}
    )
    data, account = clipless.datasets.load(**spec.data_options()), Account(address)

    def quote(spec):
        loaded = LoadedSpec(spec=spec, data=data)
        wanted = make_reservation(loaded.plan(), data, account, sweep="", title="t", spender="ann")
        return quote_of(account, wanted, find_fit(loaded, account, wanted))

    return quote, spec


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("data", "privacy", "search", "more", "field"),
    [
        (PRIVATE, {"sweep_epsilon": 2.0}, ONE, {"epsilon": 1.5}, BUDGET),
        (PRIVATE, {"sweep_epsilon": 30.0}, ONE, {"epsilon": 1.5}, BUDGET),
        (PRIVATE, {"sweep_epsilon": 3.0}, {"trials": 3, "rehearse": False}, {"epsilon": 2.5}, BUDGET),
        (PUBLIC, {"sweep_epsilon": 2.0}, {"trials": 6, "rehearse": False}, {"epsilon": 1.2}, BUDGET),
        (PUBLIC, {"sweep_epsilon": 2.0}, ONE, {"epsilon": 3.0, "shares": (Share(name="ann", part=0.2),)}, BUDGET),
        (
            PUBLIC,
            {"sweep_epsilon": 2.0, "relation": "replace-one"},
            ONE,
            {"epsilon": 1.0, "relation": Relation.REPLACE_ONE},
            BUDGET,
        ),
        (
            PUBLIC,
            {"sweep_epsilon": 3.0, "accounting": "filter", "epsilon": 1.0},
            {"trials": 3},
            {"epsilon": 2.0},
            BUDGET,
        ),
        (PUBLIC, {"sweep_epsilon": 3.0}, {"selection": "private", "selection_mean": 5}, {"epsilon": 2.0}, BUDGET),
        (PUBLIC, {"epsilon": 1.0}, {"trials": 2}, {"epsilon": 0.8}, "privacy.epsilon"),
    ],
)
def test_the_budget_that_is_named_fits_and_two_percent_more_does_not(address, data, privacy, search, more, field):
    quote, spec = asked(address, data, privacy, search, **more)
    (named,) = re.findall(rf"; lower {field} to ([\d.]+), the most that fits, or ask ", quote(spec).refused)
    assert quote(spec).fits == (float(named) if field == BUDGET else None)
    fitting = quote(spec.with_values({field: float(named)}))
    assert (fitting.refused, fitting.fits) == (None, None)
    assert quote(spec.with_values({field: 1.02 * float(named)})).refused


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("privacy", "search", "epsilon", "said"),
    [
        (
            {"noise_multiplier": 2.0, "score_noise": 20.0},
            {"trials": 3},
            1.0,
            "raise privacy.score_noise or lower search.trials or raise privacy.noise_multiplier or ask its owner to "
            "raise it",
        ),
        ({"sweep_epsilon": 3.0}, ONE, 0.1, "no privacy.sweep_epsilon of this spec fits; ask its owner to raise it"),
        (
            {"sweep_epsilon": 3.0, "score_noise": 4.0},
            ONE,
            0.2,
            "no privacy.sweep_epsilon of this spec fits; raise privacy.score_noise or ask its owner to raise it",
        ),
        (
            {"epsilon": {"log": [1.0, 4.0]}, "score_noise": 20.0},
            {"trials": 3},
            1.0,
            "raise privacy.score_noise or lower search.trials or lower privacy.epsilon or ask its owner to raise it",
        ),
    ],
)
def test_where_no_budget_would_do_it_says_so_and_what_counts(address, privacy, search, epsilon, said):
    quote, spec = asked(address, PRIVATE, privacy, search, epsilon=epsilon)
    assert quote(spec).refused.endswith(f"; {said}")
    assert quote(spec).fits is None


def test_who_has_no_share_and_a_closed_account_are_told_nothing_of_budgets(address):
    quote, spec = asked(
        address, PUBLIC, {"sweep_epsilon": 2.0}, ONE, epsilon=1.0, shares=(Share(name="ben", part=1.0),)
    )
    assert quote(spec).refused.endswith("got 'ann'; ask its owner for one")
    assert "Refused by its account: " in quote(spec).in_words()
