import json
import re
import sys
import tomllib
from pathlib import Path

from sweeper.service.settings import MCP_EXTRA
from tools import constraints

ROOT = Path(__file__).parents[2]


def a_package(name, version):
    return {"metadata": {"name": name, "version": version}}


def test_versions_are_written_in_order_without_the_suffix_of_a_build_and_without_this_package(
    tmp_path, monkeypatch, capsys
):
    report = tmp_path / "report.json"
    packages = [a_package("torch", "2.13.0+cpu"), a_package("sweeper", "0.1.0"), a_package("Prometheus_Client", "0.26")]
    report.write_text(json.dumps({"install": packages}))
    monkeypatch.setattr(sys, "argv", ["constraints", str(report)])
    constraints.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["prometheus-client==0.26", "torch==2.13.0"]


def test_every_dependency_has_one_exact_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    names = {re.match(r"[\w.-]+", one).group().lower() for one in declared} - {"sweeper"}
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines)
    pinned = [line.partition("==")[0] for line in lines]
    assert names <= set(pinned)
    assert pinned == sorted(set(pinned))


def test_the_lowest_versions_are_the_bounds_of_what_users_install(monkeypatch, capsys):
    project = {
        "dependencies": ["torch>=2.8,<2.15", "ray[tune]>=2.60,<2.61"],
        "optional-dependencies": {"service": ["sweeper[mcp]", "fastapi>=0.165"], "dev": ["mypy>=1.14", "torch>=2.9"]},
    }
    assert list(constraints.lowest(project)) == ["fastapi==0.165", "ray==2.60", "torch==2.8"]
    monkeypatch.setattr(sys, "argv", ["constraints", "--lowest"])
    constraints.main()
    lines = capsys.readouterr().out.splitlines()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert all(">=" in one for one in declared)
    assert {re.match(r"[\w.-]+", one).group() for one in declared} <= {line.partition("==")[0] for line in lines}
    assert len(lines) == len({line.partition("==")[0] for line in lines}), "two bounds of one package"


def test_make_and_the_image_install_from_the_file():
    image = (ROOT / "Dockerfile").read_text()
    assert image.count("pip install ") == image.count("pip install --constraint constraints.txt ") == 2
    assert "--constraint $(CONSTRAINTS)" in (ROOT / "Makefile").read_text()


def test_the_image_has_what_the_service_serves():
    (extras,) = re.findall(r'"\.\[([a-z,]+)\]"', (ROOT / "Dockerfile").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = {re.match(r"[\w.-]+", one).group() for extra in extras.split(",") for one in project[extra]}
    nested = {one for extra in extras.split(",") for one in project[extra] if one.startswith("sweeper[")}
    assert nested == {"sweeper[service]"}
    installed |= {re.match(r"[\w.-]+", one).group() for one in project["service"]}
    assert {name.replace("_", "-") for name in MCP_EXTRA} <= installed, "serve --mcp would be refused there"
