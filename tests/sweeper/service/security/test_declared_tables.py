"""What a client may not choose of a private table: every form of question that its answers would count."""

import json
import os

import pytest

from clipless import datasets
from clipless.datasets import Evaluation
from sweeper.errors import SpecError
from sweeper.service.catalog import Catalog
from sweeper.service.security.declared_tables import MAX_RANGES_BYTES, list_tables
from sweeper.service.security.spec_policy import read_spec
from sweeper.service.settings import ServiceSettings
from sweeper.specification.spec import Spec
from sweeper.specification.yaml_file import parse_mapping

RANGES = """\
source: codebook
table: patients.csv
target: {column: readmitted, classes: ["no", "yes"]}
columns: {age: {low: 0, high: 120}, patient: {drop: true}, diagnosis: {drop: true}}
"""
HASHED = "splits: {validation: 0.2, test: 0.2, salt: ours}\n"
BY_COLUMN = "splits: {column: fold, train: [a], validation: [b], test: [c]}\n"
SPEC = """\
name: probe
data: {path: patients.csv, ranges: ranges.yaml, evaluation: private}
model: {architecture: mlp, width: 4}
training: {epochs: 1, batch_size: 8}
privacy: {epsilon: 0.01, delta: 1e-6, score_noise: 1e5}
search: {trials: 1, objectives: [epsilon, accuracy]}
"""
UNDECLARED = "Expected a table and the ranges file that declares it"


@pytest.fixture
def data_dir(tmp_path):
    """The data folder of a service."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "patients.csv").write_text("patient,age,diagnosis,readmitted\nAnn,33,hiv,no\n")
    (folder / "others.csv").write_text("patient,age,diagnosis,readmitted\nBob,33,flu,no\n")
    (folder / "ranges.yaml").write_text(RANGES)
    return folder


@pytest.fixture
def ask(out, data_dir):
    """Submit a spec with other data; return what it names."""

    def submit(declared="", **data):
        (data_dir / "ranges.yaml").write_text(RANGES + declared)
        content = parse_mapping(SPEC, "the spec")
        content["data"] |= data
        if content["data"]["evaluation"] != "private":
            del content["privacy"]["score_noise"]
        settings = ServiceSettings(out=out, data_dir=data_dir)
        return read_spec(json.dumps(content).encode(), "application/json", settings, Catalog(out)).spec.data

    return submit


CHOICES = {
    "a column value by value": {"splits": {"column": "patient", "train": ["a"], "validation": ["b"], "test": ["c"]}},
    "the rows of a diagnosis": {
        "splits": {"column": "diagnosis", "train": ["hiv"], "validation": ["flu"], "test": ["none"]}
    },
    "the largest number of rows of a value": {"unit": "diagnosis"},
    "the rows that fall together under a key of one's own": {"splits": {"salt": "x"}},
    "the hashes of rows, one after another": {"splits": {"validation": 0.15, "test": 0.1500001}},
    "whether a column has other values": {"target": "diagnosis", "classes": ["flu", "none"]},
    "whether a label occurs": {"classes": ["no", "yes", "perhaps"]},
    "which label comes first": {"classes": ["yes", "no"]},
    "scores that nobody pays for": {"evaluation": "exploratory"},
    "scores of rows that are called public": {"evaluation": "public"},
}


@pytest.mark.parametrize("declared", ["", HASHED, BY_COLUMN + "unit: patient\n"])
@pytest.mark.parametrize("question", CHOICES)
def test_no_question_of_a_clients_own_is_asked_of_private_rows(question, declared, ask):
    with pytest.raises(SpecError, match="a spec may only repeat what the operator declares beside the data"):
        ask(declared, **CHOICES[question])


def test_what_the_operator_declares_may_be_left_out_or_repeated(ask, data_dir):
    assert ask().path == str(data_dir / "patients.csv")
    assert ask(unit="row", splits={"validation": 0.15}, target="readmitted", classes=["no", "yes"]).unit == "row"
    assert ask("unit: patient\n" + HASHED).unit is None
    repeated = {"column": "fold", "train": ["a"], "validation": ["b"], "test": ["c"]}
    assert ask("unit: patient\n" + BY_COLUMN, unit="patient", splits=repeated).unit == "patient"
    assert ask("evaluation: public\n", evaluation="public").evaluation.value == "public"
    for declared in ("unit: patient\n", "evaluation: public\n"):
        with pytest.raises(SpecError, match=r"Expected (unit|evaluation) as ranges.yaml declares it, got "):
            ask(declared, unit="row")


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("target: {column: readmitted}\n", "Expected the target and its classes in ranges.yaml"),
        ("target: {classes: [a, b]}\n", "Expected the target and its classes in ranges.yaml"),
        ("source: data (unpaid)\n", "Expected evaluation: exploratory in ranges.yaml, computed from the rows,"),
        ("source: data (unpaid)\nevaluation: public\n", "Expected evaluation: exploratory in ranges.yaml"),
    ],
)
def test_what_the_operator_left_open_is_no_clients_to_say(declared, said, ask, monkeypatch):
    key = declared.partition(":")[0]
    lines = [line for line in RANGES.splitlines(keepends=True) if not line.startswith(key)]
    monkeypatch.setattr(f"{__name__}.RANGES", "".join(lines))
    with pytest.raises(SpecError, match=said.replace("(", r"\(")):
        ask(declared, target="readmitted", classes=["no", "yes"])


def test_what_was_computed_from_the_rows_is_served_where_the_operator_says_so(ask, monkeypatch):
    monkeypatch.setattr(f"{__name__}.RANGES", RANGES.replace("codebook", "data (unpaid)"))
    assert ask("evaluation: exploratory\n", evaluation="exploratory").evaluation.value == "exploratory"


def test_of_files_that_are_not_declared_nothing_is_told_not_even_whether_they_exist(ask, data_dir, tmp_path):
    (data_dir / "plain.yaml").write_text("secret: 1\n")
    (data_dir / "broken.yaml").write_text("{")
    (data_dir / "deep.yaml").write_text("[" * 5000)
    (data_dir / "other.yaml").write_text(RANGES.replace("table: patients.csv\n", ""))
    (data_dir / "huge.yaml").write_text(RANGES + "#" * MAX_RANGES_BYTES)
    (data_dir / "latin.yaml").write_bytes(b"\xff")
    (data_dir / "loop.yaml").symlink_to(data_dir / "loop.yaml")
    (tmp_path / "outside.yaml").write_text(RANGES.replace("patients.csv", "data/patients.csv"))
    (data_dir / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    ranges = ("none", "plain", "broken", "deep", "other", "huge", "latin", "loop", "link", "more/none")
    told = set()
    for data in (*({"ranges": f"{name}.yaml"} for name in ranges), {"path": "others.csv"}, {"path": "none.csv"}):
        with pytest.raises(SpecError, match=UNDECLARED) as refused:
            ask(**data)
        told.add(str(refused.value))
    assert len(told) == 1


@pytest.mark.parametrize("ranges", ["patients.csv", "../data/ranges.yaml", "/ranges.yaml", "ranges.yaml/", None])
def test_declarations_are_in_a_file_of_that_kind(ranges, ask):
    with pytest.raises(SpecError, match=r"\(data.ranges in the submitted spec\)"):
        ask(ranges=ranges)


@pytest.mark.parametrize("given", [{"evaluation": "exploratory"}, {"splits": {"salt": "x"}}])
def test_of_the_data_of_a_plug_in_a_client_chooses_nothing(given, out, monkeypatch):
    monkeypatch.setattr(datasets, "available", lambda: {"ward": "plug-in ward:load"}, raising=False)
    plain = parse_mapping(SPEC.replace(", score_noise: 1e5", ""), "s")
    body = Spec.from_mapping(plain | {"data": {"name": "ward"}}).to_yaml().encode()
    settings, catalog = ServiceSettings(out=out), Catalog(out)
    assert read_spec(body, "application/yaml", settings, catalog).spec.data.name == "ward"
    body = Spec.from_mapping(plain | {"data": {"name": "ward"} | given}).to_yaml().encode()
    with pytest.raises(SpecError, match="for the data set of a plug-in, which declares its own"):
        read_spec(body, "application/yaml", settings, catalog)


def test_the_tables_are_listed_that_a_spec_may_name(data_dir):
    (data_dir / "survey").mkdir()
    (data_dir / "survey" / "patients.csv").write_text("age,readmitted\n33,no\n")
    (data_dir / "survey" / "ours.yml").write_text(RANGES + "evaluation: public\nunit: patient\n")
    (data_dir.parent / "outside.csv").write_text("age,readmitted\n33,no\n")
    odd = {
        "undeclared.yaml": RANGES.replace("table: patients.csv\n", ""),
        "missing.yaml": RANGES.replace("patients.csv", "none.csv"),
        "outside.yaml": RANGES.replace("patients.csv", "../outside.csv"),
        "computed.yaml": RANGES.replace("codebook", "data (unpaid)"),
        "targetless.yaml": RANGES.replace("target:", "# target:"),
        "odd.yaml": "[",
        "patients.txt": RANGES,
    }
    for name, text in odd.items():
        (data_dir / name).write_text(text)
    os.mkfifo(data_dir / "pipe.yaml")
    (data_dir / "link.yaml").symlink_to(data_dir.parent / "outside.ranges.yaml")
    (data_dir.parent / "outside.ranges.yaml").write_text(RANGES.replace("patients.csv", "outside.csv"))
    found = [(path, ranges, declared.evaluation, declared.unit) for path, ranges, declared in list_tables(data_dir)]
    assert found == [
        ("patients.csv", "ranges.yaml", None, None),
        ("survey/patients.csv", "survey/ours.yml", Evaluation.PUBLIC, "patient"),
    ]
    assert list_tables(None) == []
