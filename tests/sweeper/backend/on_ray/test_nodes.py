"""Code of other nodes: told apart, sent where it differs, refused where it cannot run."""

import importlib.util
import subprocess
import sys

import pytest
from ray import cloudpickle

from sweeper.backend.on_ray.nodes import facts_of_this_code, node_facts, unlike_nodes
from sweeper.errors import SweeperError

HERE = {"clipless": "/a/clipless", "sweeper": "/a/sweeper", "dashboards": "/a/dashboards", "code": "c1", "torch": "2.9"}


def test_nodes_with_the_same_code_are_sent_nothing():
    found = unlike_nodes(HERE, {"10.0.0.1": HERE | {"clipless": "/b"}, "10.0.0.2": HERE | {"torch": "2.9+cpu"}})
    assert found.packages == found.sentences == ()


def test_nodes_with_other_code_or_none_are_sent_this_one_and_named():
    nodes = {"10.0.0.1": HERE, "10.0.0.3": HERE | {"code": ""}, "10.0.0.2": HERE | {"code": "c2"}}
    found = unlike_nodes(HERE, nodes)
    assert found.packages == ("/a/clipless", "/a/sweeper", "/a/dashboards")
    (sentence,) = found.sentences
    assert "10.0.0.2, 10.0.0.3" in sentence
    assert "10.0.0.1" not in sentence


def test_another_torch_is_told():
    (sentence,) = unlike_nodes(HERE, {"10.0.0.1": HERE | {"torch": "2.8.1+cu128"}}).sentences
    assert sentence == "The cluster's nodes have torch 2.8.1, the driver 2.9"


def test_a_node_without_torch_is_refused_by_name():
    with pytest.raises(SweeperError, match=r"Expected torch on every node of the cluster, got none on 10\.0\.0\.2"):
        unlike_nodes(HERE, {"10.0.0.1": HERE, "10.0.0.2": HERE | {"torch": ""}})


def test_this_code_is_found_with_any_change_of_it(tmp_path, monkeypatch):
    here = facts_of_this_code()
    assert here["sweeper"].endswith("/sweeper")
    assert here == facts_of_this_code()
    for name in ("clipless", "sweeper", "dashboards"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("x = 1")
    find = importlib.util.find_spec

    def found(name):
        spec = find(name)
        spec.submodule_search_locations = [str(tmp_path / name)]
        return spec

    monkeypatch.setattr(importlib.util, "find_spec", found)
    first = facts_of_this_code()["code"]
    (tmp_path / "sweeper" / "__init__.py").write_text("x = 2")
    assert len({here["code"], first, facts_of_this_code()["code"]}) == 3


WITHOUT_PACKAGE = """
import sys
from pathlib import Path
from ray import cloudpickle
ours = ("sweeper", "clipless", "dashboards")
sys.path[:] = [place for place in sys.path if not any((Path(place) / name / "__init__.py").exists() for name in ours)]
print(cloudpickle.loads(bytes.fromhex(sys.argv[1]))())
"""


def test_the_question_is_answered_where_this_package_is_missing(tmp_path):
    question = cloudpickle.dumps(node_facts()).hex()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGE, question], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "'sweeper': ''" in done.stdout
    assert "'code': ''" in done.stdout
