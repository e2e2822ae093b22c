"""The table of samplers: one entry is one sampler."""

import optuna
import pytest

from sweeper.records import Objective
from sweeper.search.optuna_search import Search
from sweeper.search.samplers import SAMPLERS, SamplerKind, sampler_kind
from sweeper.specification import plugins
from sweeper.specification.plugins import BUILT_IN_SAMPLERS
from sweeper.specification.search import Sampler

AXES = [Objective.named("epsilon"), Objective.named("accuracy")]


def test_every_name_of_the_spec_is_a_sampler():
    assert set(SAMPLERS) == set(Sampler)
    assert tuple(kind.value for kind in Sampler) == BUILT_IN_SAMPLERS


@pytest.mark.parametrize("sampler", Sampler)
def test_a_sampler_is_made_without_remarks(sampler, capfd):
    made = sampler_kind(sampler).for_trial(3, 1)
    assert isinstance(made, optuna.samplers.BaseSampler)
    assert capfd.readouterr() == ("", "")


def test_each_trial_has_a_seed_of_its_own_but_in_one_sequence():
    seeds = []
    kind = SamplerKind(lambda seed: seeds.append(seed) or optuna.samplers.RandomSampler())
    for number in (1, 2, 1):
        kind.for_trial(0, number)
    SamplerKind(kind.make, one_sequence=True).for_trial(7, 2)
    assert seeds[0] == seeds[2] != seeds[1]
    assert seeds[3] == 7


def test_a_new_entry_is_a_new_sampler(monkeypatch):
    """A search asks for it by its key, and does with it what its entry says."""
    fixed = optuna.samplers.PartialFixedSampler
    kind = SamplerKind(lambda seed: fixed({"x": 3}, optuna.samplers.RandomSampler(seed)))
    monkeypatch.setitem(SAMPLERS, Sampler.TPE, kind)
    search = Search(lambda trial: {"x": trial.suggest_int("x", 1, 9)}, AXES, sampler=Sampler.TPE, seed=0)
    assert search.open[search.ask()] == {"x": 3}


def test_a_plug_in_is_asked_again_when_a_search_is_rebuilt(monkeypatch):
    monkeypatch.setattr(plugins, "_load", lambda *_: lambda seed: optuna.samplers.RandomSampler(seed))
    kind = sampler_kind("mine")
    assert kind.remembers
    assert kind.told_epochs == 1
    assert isinstance(kind.for_trial(0, 1), optuna.samplers.RandomSampler)
