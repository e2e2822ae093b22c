"""Printed commands begin with what runs here."""

import sys

import pytest

from sweeper.program import program


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The folder of an environment that has the program, which is this process's."""
    folder = tmp_path / "a venv" / "bin"
    folder.mkdir(parents=True)
    beside = folder / "sweeper"
    beside.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


def test_a_program_that_the_shell_finds_is_called_by_its_name(installed, monkeypatch):
    monkeypatch.setenv("PATH", str(installed))
    assert program() == "sweeper"


@pytest.mark.parametrize("path", ["/nowhere", "other"])
def test_another_one_is_called_by_its_path_as_short_as_can_be(installed, path, tmp_path, monkeypatch):
    other = tmp_path / "other" / "sweeper"
    other.parent.mkdir()
    other.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / path))
    monkeypatch.chdir(other.parent)
    assert program() == f"'{installed / 'sweeper'}'"
    monkeypatch.chdir(tmp_path)
    assert program() == "'a venv/bin/sweeper'"


def test_where_no_program_is_installed_its_name_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert program() == "sweeper"
