"""What a spec that comes over the network may name: every way out that anybody could think of is tried."""

import json

import pytest
import yaml

from sweeper.errors import RefusalError, SpecError
from sweeper.service.catalog import Catalog
from sweeper.service.security import spec_policy
from sweeper.service.security.spec_policy import JSON_TYPES, AcceptedSpec, read_spec
from sweeper.service.settings import ServiceSettings
from sweeper.specification.addresses import parse_address
from sweeper.specification.spec import schema

RANGES = """\
source: codebook
table: patients.csv
evaluation: public
target: {column: sick, classes: ["no", "yes", "\U0001f600"]}
columns: {age: {low: 0, high: 120}}
"""
# Keys of a spec that hold free text, each judged by the policy or harmless: the names of columns, labels and splits.
FREE_TEXT = {"name", "data.name", "data.path", "data.ranges", "data.target", "data.unit", "data.block", "data.splits.column",
             "data.splits.salt", "privacy.account", "search.warm_start"}  # fmt: skip
TABLE = {"path": "patients.csv", "target": "sick", "evaluation": "public", "ranges": "ranges.yaml"}


@pytest.fixture
def data_dir(tmp_path):
    """The service's data folder, and a file beside it that is nobody's to read."""
    folder = tmp_path / "data"
    (folder / "more").mkdir(parents=True)
    for name in ("patients.csv", "more/patients.csv", "alone.csv"):
        (folder / name).write_text("x")
    for name in ("ranges.yaml", "more/ranges.yaml"):
        (folder / name).write_text(RANGES)
    (tmp_path / "secret.csv").write_text("secret")
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "up").symlink_to(tmp_path)
    (folder / "inside.csv").symlink_to(folder / "patients.csv")
    (folder / "loop.csv").symlink_to(folder / "loop.csv")
    return folder


@pytest.fixture
def read(out, data_dir):
    """Read a spec as the service would."""

    def ask(content, *, kind="application/json", **settings):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        given = ServiceSettings(out=out, **{"data_dir": data_dir, **settings})
        return read_spec(body, kind, given, Catalog(out)).spec

    return ask


def test_a_spec_is_read_from_yaml_and_from_json(read, content):
    assert read(content).name == "digits"
    for kind in ("application/yaml", "text/yaml; charset=utf-8", "TEXT/PLAIN"):
        assert read(yaml.safe_dump(content).encode(), kind=kind) == read(content)


@pytest.mark.parametrize(
    "kind", ["", "text/html", "application/xml", "multipart/form-data", "application/x-python-pickle"]
)
def test_nothing_else_is_read(kind, read, content):
    with pytest.raises(RefusalError, match="Expected a spec as application/json or application/yaml") as refused:
        read(content, kind=kind)
    assert refused.value.status == 415


def test_a_table_in_the_data_folder_is_found_there(read, content, data_dir):
    for path, ranges in (("patients.csv", ""), ("more/patients.csv", "more/"), ("inside.csv", "")):
        spec = read(content | {"data": TABLE | {"path": path, "ranges": f"{ranges}ranges.yaml"}})
        assert spec.data_options(data_dir)["source"] == (data_dir / path).resolve()
        assert spec.data_options(data_dir)["ranges"] == data_dir / ranges / "ranges.yaml"


OUTSIDE = [
    "/etc/passwd", "../secret.csv", "more/../../secret.csv", "./patients.csv", "link.csv", "up/secret.csv", "loop.csv",
    "~/secret.csv", "~root/x.csv", "more", "none.csv", "", " ", "more//patients.csv", "..\\secret.csv", "patients.csv\x00",
    "http://169.254.169.254/latest.csv", "https://evil.example/x.csv", "s3://bucket/x.csv", "file:///etc/passwd",
    "gs://x/y.parquet", "//evil.example/x.csv", "\\\\evil\\share\\x.csv", "C:\\x.csv", "%2e%2e/secret.csv",
    "..%2fsecret.csv", "patients.csv/", "/patients.csv", "x" * 5000, "\uff0e\uff0e/secret.csv", "ftp://x/y.csv", "data:,x",
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("field", ["path", "ranges"])
@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out_of_the_data_folder(path, field, read, content, data_dir):
    with pytest.raises(SpecError) as refused:
        read(content | {"data": TABLE | {field: path}})
    assert f"data.{field}" in str(refused.value) or "null" in str(refused.value)
    assert str(data_dir) not in str(refused.value)
    assert "secret" not in str(refused.value).replace(path, "")


def test_without_a_data_folder_there_are_no_tables(read, content):
    with pytest.raises(SpecError, match=r"Expected no file: this service has no data folder \(data.path"):
        read(content | {"data": TABLE}, data_dir=None)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [*OUTSIDE, "patients.csv", "DIGITS ", "os.system", "sklearn.datasets:load_digits"])
def test_a_name_of_data_is_a_registered_one_and_never_a_path(name, read, content, monkeypatch, data_dir):
    monkeypatch.chdir(data_dir)
    with pytest.raises(SpecError, match=r"Expected .*data"):
        read(content | {"data": {"name": name}})


def test_data_that_would_be_fetched_are_refused_unless_that_is_allowed(read, content):
    fetched = content | {"data": {"name": "mnist"}}
    with pytest.raises(SpecError, match=r"Expected a data set that the service has; mnist would be fetched"):
        read(fetched, data_dir=None)
    assert read(fetched, data_dir=None, allow_fetch=True).data.name == "mnist"
    assert read(fetched).data.name == "mnist", "a driver that is given a folder looks nowhere else"
    assert read(content, data_dir=None).data.name == "digits"


@pytest.mark.usefixtures("out", "tmp_path")
def test_an_earlier_sweep_is_one_of_the_service(read, content, make_sweep):
    folder = make_sweep()
    spec = read(content | {"search": {"warm_start": folder.path.name}})
    assert spec.search.warm_start == str(folder.path)
    make_sweep(".selecting-x")
    odd = ("mlflow:others", "mlflow:", str(folder.path), f"../out/{folder.path.name}", ".selecting-x", "none", "..",
           "http://evil.example/", f"{folder.path.name}/", "sqlite:///x.db")  # fmt: skip
    for name in odd:
        with pytest.raises(SpecError, match=r"search.warm_start|mlflow:NAME"):
            read(content | {"search": {"warm_start": name}})


def test_a_private_selection_does_not_run_where_others_watch(read, content):
    private = {"selection": "private", "sampler": "random"}
    with pytest.raises(SpecError, match="Expected no private selection in a service, where others see"):
        read(content | {"search": private, "privacy": {"epsilon": 1.0, "delta": 1e-5}})
    given = content | {"search": private, "privacy": {"epsilon": 1.0, "delta": 1e-5}}
    assert read(given, duration_is_seen=True).search.selection.value == "private"
    with pytest.raises(SpecError, match="Expected no private selection in a service that trains on a cluster"):
        read(given, duration_is_seen=True, cluster="head:6379")


def test_every_key_of_a_spec_that_takes_free_text_was_judged():
    """A new key that takes any text fails here, until somebody has decided what it may name over the network."""
    whole = schema()
    found = set()

    def walk(node, name):
        if isinstance(node, list):
            for inner in node:
                walk(inner, name)
        elif isinstance(node, dict):
            if "$ref" in node:
                walk(whole["$defs"][node["$ref"].rpartition("/")[2]], name)
            if node.get("type") == "string" and not {"enum", "const"} & set(node):
                found.add(name)
            for key in ("anyOf", "oneOf", "allOf", "items", "prefixItems"):
                walk(node.get(key, []), name)
            for key, inner in node.get("properties", {}).items():
                walk(inner, f"{name}.{key}".lstrip("."))

    walk({k: v for k, v in whole.items() if k != "$defs"}, "")
    texts = {"data.splits.train", "data.splits.validation", "data.splits.test", "search.objectives", "search.metrics",
             "search.constraints"}  # fmt: skip
    texts |= {f"data.features.{name}" for name in ("name", "module", "file", "licence", "pretrained_on", "sha256")}
    texts |= {name for name in found if name.startswith("deployment.")}  # copied to cards, and names no file
    assert found - FREE_TEXT <= texts, "judge it in sweeper/service/security/spec_policy.py"


@pytest.mark.parametrize(
    "given", [{"name": "mine"}, {"module": "os:getcwd"}, {"file": "/etc/net.pt"}, {"licence": "X"}]
)
def test_an_encoder_is_one_that_ships_and_nothing_that_a_request_names_is_imported_or_opened(read, content, given):
    own = {"licence": "MIT", "pretrained_on": "x", "clip": 1.0} if "name" in given or "file" in given else {}
    own |= {"clip": 1.0, "pretrained_on": "x", "licence": "MIT"} if "module" in given else {}
    module = {"module": "os:getcwd"} if given == {"name": "mine"} else {}
    features = {"name": "wordllama", **own, **module, **given}
    with pytest.raises(SpecError, match="an encoder by its name alone, efficientnet-lite0 or wordllama: a service"):
        read(content | {"data": {"name": "digits", "features": features}})
    plain = {"name": "wordllama", "clip": 1.0}
    assert read(content | {"data": {"name": "digits", "features": plain}}).data.features.clip == 1.0


def test_no_account_is_named_over_the_network(read, data_dir):
    content = {"name": "a", "data": {"name": "digits"}, "model": {"architecture": "mlp"}, "training": {"epochs": 1}}
    privacy = {"epsilon": 3.0, "delta": 1e-4, "account": f"{data_dir.parent}/accounts.db#clinic"}
    with pytest.raises(SpecError, match="Expected no account, for the operator of the service declares none"):
        read(content | {"privacy": privacy})


@pytest.mark.parametrize("path", ["patients.csv", "inside.csv", "more/hard.csv"])
def test_a_table_is_charged_to_its_account_by_whatever_name_it_goes(read, content, data_dir, path):
    address = parse_address(f"{data_dir.parent}/accounts.db#clinic")
    (data_dir / "more" / "hard.csv").hardlink_to(data_dir / "patients.csv")
    (data_dir / "more" / "ranges.yaml").write_text(RANGES.replace("patients.csv", "hard.csv"))
    ranges = "more/ranges.yaml" if "more" in path else "ranges.yaml"
    given = content | {"data": TABLE | {"path": path, "ranges": ranges}}
    assert read(given, accounts={"patients.csv": address}).privacy.account == str(address)
    assert read(given, accounts={"more/patients.csv": address}).privacy.account is None


BOMB = b"a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: [*b, *b, *b, *b]\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (BOMB, "aliases are not allowed"),
        (b"a: &a\n  b: *a\n", "aliases are not allowed"),
        (b"<<: {a: 1}\n<<: {a: 2}\n", "occurs twice"),
        (b"name: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        (b"name: !!python/name:os.system\n", "could not determine a constructor"),
        (b"name: !include /etc/passwd\n", "could not determine a constructor"),
        (b"a: " + b"[" * 5000, "nested deeper"),
        (b"a: " + b"{b: " * 5000, "nested deeper"),
        (b"- " * 5000, "nested deeper"),
        (b"a: " + b"9" * 5000, "Exceeds the limit"),
        (b"name: a\nname: b\n", "occurs twice"),
        (b"1: a\n", "is not text"),
        (b"--- a: 1\n--- b: 2\n", "Expected YAML"),
        (b"\xff\xfe", "Expected UTF-8 text"),
        (b"name: \x07\n", "Expected YAML"),
        (b"%TAG ! tag:evil,2000:\n---\na: !x 1\n", "could not determine a constructor"),
        (b"", "got nothing"),
        (b"[]", "got list"),
        (b"a: 1e999999999999999999999", "a"),
    ],
)
def test_no_yaml_is_expanded_run_or_followed(body, said, read):
    with pytest.raises(SpecError) as refused:
        read(body, kind="application/yaml")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 60_000, "Expected JSON"),
        (b'{"a":' * 30_000, "Expected JSON"),
        (b'{"a":' * 50 + b"1" + b"}" * 50, "nested at most"),
        (b'{"a": 1, "a": 2}', "a key occurs twice"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "is no number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Expected JSON"),
        (b"[]", "got list"),
        (b"null", "got NoneType"),
        (b"{", "Expected JSON"),
        (b'"a"', "got str"),
    ],
)
def test_no_json_is_odder_than_a_spec(body, said, read):
    with pytest.raises(SpecError) as refused:
        read(body, kind=JSON_TYPES[0])
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "odd",
    [
        {"data": TABLE | {"path": "\ud800.csv"}},
        {"data": TABLE | {"ranges": "\ud800"}},
        {"data": TABLE | {"target": "\udfff"}},
        {"data": {"name": "digits", "target": "\ud83d"}},
        {"search": {"sampler": "\ud800"}},
        {"search": {"objectives": ["accuracy", "\ud800"]}},
        {"search": {"warm_start": "\ud800"}},
        {"\ud800": 1},
    ],
)
def test_half_a_character_is_no_text(odd, read, content):
    body = json.dumps(content | odd)
    for kind in ("application/json", "application/yaml"):
        with pytest.raises(SpecError, match="Expected text that can be written as UTF-8 in the submitted spec"):
            read(body.encode(), kind=kind)


def test_every_whole_character_is_text(read, content):
    labels = ["no", "yes", "\U0001f600"]
    assert read(content | {"data": TABLE | {"classes": labels}}).data.classes == tuple(labels)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a b", "../x", "", "a/b", ".hidden", "a\nb", "x" * 101])
def test_a_sweep_has_a_plain_name(name, read, content):
    with pytest.raises(SpecError, match="Expected a name of up to 100 letters"):
        read(content | {"name": name})


@pytest.mark.parametrize("number", [10**400, -(10**400), 1e308 * 10])
def test_numbers_beyond_a_computers_are_refused(number, read, content):
    huge = json.dumps(content | {"privacy": {"epsilon": 3.0, "delta": 1e-4}}).replace("3.0", str(number))
    with pytest.raises(SpecError):
        read(huge.encode())
    ranged = content | {"training": {"epochs": {"int": [1, 5]}, "learning_rate": {"log": [1.0, 7.5]}}}
    with pytest.raises(SpecError):
        read(json.dumps(ranged).replace("7.5", str(number)).encode())


@pytest.mark.parametrize("key", ["tracking", "webhook", "cluster", "import", "data_dir", "out", "storage"])
def test_how_a_sweep_is_run_is_no_part_of_a_spec(key, read, content):
    for changed in (content | {key: "http://evil.example"}, content | {"search": {key: "http://evil.example"}}):
        with pytest.raises(SpecError, match=key):
            read(changed)


def test_a_computer_that_cannot_count_so_far_says_so(read, content, monkeypatch):
    monkeypatch.setattr(spec_policy, "_locate_files", lambda *_: 10.0**400)
    with pytest.raises(SpecError, match="within the range of a computer"):
        read(content)


def test_what_a_spec_leaves_to_its_data_stays_left_to_them(read, data_dir):
    three_lines = {
        "name": "a",
        "data": {"path": "patients.csv", "ranges": "ranges.yaml"},
        "privacy": {"sweep_epsilon": 3},
    }
    accepted = AcceptedSpec(read(three_lines))
    kept = yaml.safe_load(accepted.text)
    assert kept["data"]["path"] == str(data_dir / "patients.csv")
    assert not {"delta", "architecture", "batch_size"} & {*kept["privacy"], *kept["model"], *kept["training"]}
    assert "at most epsilon 3 at the delta that its driver chooses for the number of rows" in accepted.price
