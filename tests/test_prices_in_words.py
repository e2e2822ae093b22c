"""The price has one word wherever it is shown, and what the guide says of epsilons is what the privacy profile gives."""

import ast
import re
from functools import lru_cache
from math import ceil, exp

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
from scipy.stats import binom

from clipless.privacy.accounting.calibration import noise_multiplier_for
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.pld import loss_grids
from clipless.privacy.events import PoissonGaussian, Relation
from tests.test_docs import ROOT, read

RATE, STEPS, DELTA = 0.152, 140, 1e-5  # of the training that the guide speaks of
FALSE_ALARMS = 0.01
RELATION = Relation.ADD_OR_REMOVE_ONE

# Words that once stood for the price, and sentences that nobody could read; see docs/glossary.md, "price".
BANNED = re.compile(
    r"after (the|this) sweep\b|after-the-sweep|\bafter a look\b|look included|price of a look"
    r"|(what|price of) everything\b|everything (leaves|costs|that (a|the) sweep releases|the sweep releases)"
    r"|costs? in total|(?<!own )epsilon \(fixed in advance\)|\ba constant answer"
    r"|against epsilon\b"
    r"|what attacks attained|whoever chooses between|orders that did not hold",
    re.IGNORECASE,
)
SHOWN = [
    "README.md",
    "docs/**/*.md",
    "sweeps/**/*.yaml",
    "sweeper/**/*.py",
    "dashboards/**/*.py",
    "dashboards/assets/*.js",
]


def shown_texts(path):
    """Yield what a file shows people: all of a page, the strings of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.sampled(4)
@pytest.mark.parametrize("pattern", SHOWN)
def test_the_price_has_one_word(pattern):
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sorted(ROOT.glob(pattern))
        for text in shown_texts(path)
        for match in BANNED.finditer(" ".join(text.split()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "said",
    [
        "5.993 after this sweep",
        "the look included",
        "Everything leaves",
        "what everything costs",
        "What does it cost in total?",
        "epsilon (fixed in advance)",
    ],
)
def test_a_banned_word_is_found(said):
    assert BANNED.search(said)


def test_the_own_epsilon_of_a_point_is_no_banned_word():
    assert not BANNED.search("own epsilon (fixed in advance), the price of the sweep")


@lru_cache
def noise_for(epsilon):
    return noise_multiplier_for(epsilon, DELTA, RATE, STEPS, RELATION)


def caught_by_epsilon(epsilon):
    return min(exp(epsilon) * FALSE_ALARMS, 1.0 - exp(-epsilon) * (1.0 - FALSE_ALARMS))


def caught_by_profile(epsilon):
    """The most that any test catches: E_P <= delta(e) + exp(e) E_Q for every e, both directions taken as the worse."""
    profiles = (grid.profile(STEPS) for grid in loss_grids(noise_for(epsilon), RATE, RELATION))
    return max(float(np.min(deltas + np.exp(epsilons) * FALSE_ALARMS)) for epsilons, deltas in profiles)


@lru_cache
def epsilon_of_a_person(rows, noise_multiplier):
    """Of somebody with so many rows: each is drawn by its own coin, and at worst they add up in one direction."""
    drawn = range(rows + 1)
    step = from_mixture_gaussian_mechanism(
        noise_multiplier, list(drawn), list(binom.pmf(drawn, rows, RATE)), value_discretization_interval=5e-3
    )
    return step.self_compose(STEPS).get_epsilon_for_delta(DELTA)


def rounded_up(share):
    return f"{ceil(1000.0 * share - 1e-9) / 10.0:.1f}"


def test_the_table_of_what_an_attacker_catches_is_that_of_the_profile():
    text = read("docs/choosing.md")
    assert f"with probability {RATE} in each of {STEPS} steps, at delta 1e-5" in text
    rows = re.findall(r"^\| ([0-9.]+) \| ([0-9.]+) % \| ([0-9.]+) % \|$", text, flags=re.MULTILINE)
    assert [float(row[0]) for row in rows] == [0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 8.0]
    for epsilon, alone, profile in rows:
        assert alone == rounded_up(caught_by_epsilon(float(epsilon)))
        assert profile == rounded_up(caught_by_profile(float(epsilon)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("page", ["docs/own-data.md", "docs/faq.md"])
def test_what_several_rows_of_a_person_cost_is_that_of_the_profile(page):
    noise = noise_for(3.0)
    spent = PoissonGaussian(noise_multiplier=noise, sampling_rate=RATE, steps=STEPS, relation=RELATION)
    assert claim(spent, DELTA).epsilon == pytest.approx(3.0, abs=0.005)
    text = read(page)
    assert "where a row costs epsilon 3, a p" in text
    counted, costs = [2, 4, 8, 10] if page == "docs/faq.md" else [4, 8], re.findall(r"\b\d+\.\d\b", _of_rows(text))
    assert costs == [f"{epsilon_of_a_person(rows, noise):.1f}" for rows in counted]


def _of_rows(text):
    (sentence,) = re.findall(r"where a row costs epsilon 3, (.*?)at the same delta", text)
    return sentence


def test_a_person_with_one_row_costs_what_a_row_costs():
    assert epsilon_of_a_person(1, noise_for(3.0)) == pytest.approx(3.0, abs=0.005)
