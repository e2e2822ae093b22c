"""What registries and offices ask for, from a card: complete, valid, and with nothing invented."""

import copy
import re

import jsonschema
import pytest
import yaml

from sweeper.papers.annexes import EDPB, EXPORTS, NIST, edpb_annex, nist_annex
from sweeper.papers.registry_record import registry_record
from sweeper.privacy.card.content import CardContent
from sweeper.privacy.pricing import state_unproven
from sweeper.specification.settings import DeploymentSettings
from sweeper.store.jsonl import plain
from tests.factories import registry_validator

from .conftest import score_noise_of

SAID = {name: f"said of {name}" for name in DeploymentSettings.model_fields} | {"published": "2026-03-01"}


def variants(content):
    """Cards of different sweeps."""
    return {name: CardContent.model_validate(card) for name, card in _variants(content)}


def _variants(content):
    yield "plain", content
    yield "said", content | {"deployment": SAID}
    yield "exploratory", content | {"exploratory": True, "data": {**content["data"], "evaluation": "exploratory"}}
    selected = copy.deepcopy(content)
    selected["guarantee"] |= {"selected": 2.5, "price": None}
    yield "selected", selected
    fixed = copy.deepcopy(content)
    fixed["guarantee"]["price"] = {"epsilon": 3.0, "fixed": True}
    yield "fixed", fixed | {"audits": [], "classes": None, "made_from": "slow-midpoint", "files": None}
    endless = copy.deepcopy(content)
    endless["guarantee"]["price"]["epsilon"] = "Infinity"
    yield "endless", endless | {"method": "non-private", "scores": {"validation": {}, "test": None}}


def chapters(text):
    return re.findall(r"^## (\d+)\. (.+)$", text, flags=re.MULTILINE)


def test_every_record_keeps_to_the_schema_of_the_registry(content):
    for name, card in variants(content).items():
        record = yaml.safe_load(registry_record(card))
        registry_validator().validate(record)
        loss = record["deployment"]["privacy_loss"]
        assert ("privacy_parameters" in loss) == (name not in ("exploratory", "endless")), name
        text = str(record)
        assert ("deployment.curator of the spec would say it" in text) == (name != "said")
        assert ("Not known; deployment" in text) == (name != "said")


def test_the_record_states_the_price_that_holds_and_how_it_was_tuned(content):
    found = {name: yaml.safe_load(registry_record(card))["deployment"] for name, card in variants(content).items()}
    winner = content["ledger"]["winner"]["epsilon"]
    assert winner <= found["plain"]["privacy_loss"]["privacy_parameters"]["epsilon"] < 1.00001 * winner
    assert found["selected"]["privacy_loss"]["privacy_parameters"]["epsilon"] == 2.5
    tuned = {name: one["implementation"]["pre_processing_eda_hyperparameter_tuning"] for name, one in found.items()}
    assert "composition of every training" in tuned["plain"]
    assert "selected privately" in tuned["selected"]
    assert "fixed before any row was read" in tuned["fixed"]
    for one in found.values():
        for told in ("Timing:", "Floating point:", "Platform:"):
            assert told in one["implementation"]["mechanisms"]
    assert found["said"]["product"]["publication_date"] == "2026-03-01"
    assert found["said"]["product"]["data_curators"] == ["said of curator"]
    assert ": |" in registry_record(variants(content)["plain"])  # blocks, not quoted line ends


@pytest.mark.parametrize(("annex", "headings"), [(nist_annex, NIST), (edpb_annex, EDPB)])
def test_an_annex_has_every_chapter_in_order_and_none_is_empty(content, annex, headings):
    for name, card in variants(content).items():
        text = annex(card)
        assert chapters(text) == [(str(number), heading) for number, heading in enumerate(headings, start=1)]
        bodies = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
        assert all(body.strip().startswith("- ") for body in bodies), name
        assert ("Not known; deployment" in text) == (name != "said")
    exploratory = annex(variants(content)["exploratory"])
    assert "Exploratory: nothing is claimed" in exploratory


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_every_export_says_that_a_price_is_not_proven(content, export):
    doubt = state_unproven(["batch_size"])
    assert doubt not in export(CardContent.model_validate(content))
    for price in content["ledger"].values():
        price["unproven"] = doubt
    assert export(CardContent.model_validate(content)).count(doubt) == 2, "of the claim, and of tuning"


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_every_export_states_all_mechanisms_trainings_and_conditions(content, export):
    noise = score_noise_of(content) | {"rows": {"validation": 100, "test": 100}}
    facts = content["guarantee"] | {"trainings": 2, "repeats": 3}
    told = export(CardContent.model_validate(content | {"score_noise": noise, "guarantee": facts}))
    assert "validation rows: Gaussian mechanism, multiplier 3.0, " in told
    assert "private test rows: multiplier 2.0 for each point" in told
    assert "trained 6 times" in told
    assert all(condition in told for condition in content["conditions"])
    noise |= {"curves": {"noise_multiplier": 5.0, "radii": 33, "two_classes": True}}
    curved = export(CardContent.model_validate(content | {"score_noise": noise}))
    assert "multiplier 5.0 for each point, read off curves" in curved


def test_everything_that_people_say_is_in_some_export(content):
    together = "".join(make(variants(content)["said"]) for make in EXPORTS.values())
    assert [text for text in SAID.values() if text not in together] == []
    lacking = "".join(make(variants(content)["plain"]) for make in EXPORTS.values())
    unsaid = {name for name in SAID if f"deployment.{name} of the spec" in lacking}
    assert unsaid == set(SAID) - {"product"}  # without which the sweep's own name serves


def test_a_contradicted_claim_is_told(content):
    found = {**content["audits"][0], "contradicted": True}
    assert "CONTRADICTS" in edpb_annex(CardContent.model_validate(content | {"audits": [found]}))


def test_exports_are_printed_or_written(signed, tmp_path, call):
    code, out, _ = call("card", signed.folder, "--as", "nist")
    assert (code, out.startswith("# Annex after NIST SP 800-226")) == (0, True)
    target = tmp_path / "record.yaml"
    code, out, _ = call("card", signed.folder / "card.json", "--as", "registry", "-o", target)
    assert (code, out.strip()) == (0, str(target))
    assert yaml.safe_load(target.read_text(encoding="utf-8"))["tier"] == 3
    code, _, err = call("card", signed.folder, "--as", "mayor")
    assert (code, "Expected --as to be one of registry, nist, edpb" in err) == (2, True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("of", ["card", "registry"])
def test_schemas_are_printed_and_are_schemas(call, of, content):
    code, out, _ = call("schema", of)
    assert code == 0
    schema = yaml.safe_load(out)
    jsonschema.Draft202012Validator.check_schema(schema)
    if of == "card":
        jsonschema.validate(plain(content), schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**content, "more": 1}, schema)
    code, _, err = call("schema", "moon")
    assert (code, "Expected a schema of spec, card, registry" in err) == (2, True)
