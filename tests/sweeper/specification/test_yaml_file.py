import pytest

from sweeper.errors import SpecError
from sweeper.specification.yaml_file import MAX_BYTES, MAX_DEPTH, parse_mapping, read_mapping


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4), ("1E5", 1e5), ("-.5e+3", -500.0), ("1.", 1.0), ("12", 12), ("010", 10), ("1_000", 1000),
        ("+3", 3), ("no", "no"), ("on", "on"), ("1:30", "1:30"), ("0x10", "0x10"), ("2024-01-01", "2024-01-01"),
        ("true", True), ("~", None), ("", None), ("none", "none"), ("36/255", "36/255"),
        ("certified@36/255", "certified@36/255"), ("'1e-4'", "1e-4"), (".inf", float("inf")),
    ],
)  # fmt: skip
def test_scalars_mean_what_a_reader_expects(text, value):
    read = parse_mapping(f"a: {text}", "f")["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", r"the key 'a' occurs twice at line 3, column 1 of f"),
        ("x: {a: 1, a: 2}", r"the key 'a' occurs twice at line 1, column 11 of f"),
        ("1: 2", r"the key 1 is not text at line 1"),
        ("? [a]\n: 2", r"the key \['a'\] is not text"),
        ("a: &x [1]\nb: *x", r"aliases are not allowed at line 2"),
        ("a: [1", r"Expected YAML, but the bracket of line 1 is not closed, or lacks a comma \(f\)"),
        ("a: {b: 1}\n c: 2", r"but line 2 is indented 1 space too far: line 1 begins at column 1 \(f\)"),
        ("a:\n   b: 1\n  c: 2", r"but line 3 is indented 1 space less than line 2, and as no line above it \(f\)"),
        ("a: b: c", r"but line 1 has a colon too many: put a text that has one in quotes \(f\)"),
        ("a: !!python/object/apply:os.system [ls]", r"could not determine a constructor"),
        ("a: !thing 3", r"could not determine a constructor"),
        ("a: \x07", r"Expected YAML in f, but .*not allowed"),
        ("a: " + "9" * 5000, r"Expected YAML in f, but .*digits"),
        ("- 1\n- 2", r"Expected a mapping of keys to values in f, got list"),
        ("", r"got nothing"),
        ("just text", r"got str"),
        ("a: 1\n---\nb: 2", r"another document"),
    ],
)
def test_what_is_no_plain_mapping_is_refused_in_one_sentence(text, problem):
    with pytest.raises(SpecError, match=problem) as caught:
        parse_mapping(text, "f")
    assert "\n" not in str(caught.value)


def test_nesting_has_an_end():
    assert parse_mapping("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1), "f")
    for deep in (MAX_DEPTH + 1, 5000):
        with pytest.raises(SpecError, match="nested deeper than 20 at line 1"):
            parse_mapping("a: " + "[" * deep + "]" * deep, "f")


def test_a_file_is_read(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_bytes("﻿name: é".encode())
    assert read_mapping(path) == {"name": "é"}


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"Cannot read .*absent\.yaml: No such file"):
        read_mapping(tmp_path / "absent.yaml")
    with pytest.raises(SpecError, match=r"Cannot read .*directory"):
        read_mapping(tmp_path)


def test_a_huge_file_is_refused(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(SpecError, match=r"at most 1000000 bytes"):
        read_mapping(path)


def test_other_encodings_are_refused(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"name: \xff")
    with pytest.raises(SpecError, match=r"UTF-8 text, got other bytes at offset 6 of .*spec\.yaml"):
        read_mapping(path)
