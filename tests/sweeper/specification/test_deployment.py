"""What people say of a model is copied to its card, and nothing that is trained or priced depends on it."""

from dataclasses import replace

import pytest

from sweeper.specification.settings import DeploymentSettings
from sweeper.specification.spec import Spec
from sweeper.specification.yaml_file import parse_mapping
from tests.factories import plan_sweep

from ...factories import small_content, spec_error

SAID = {"curator": "City Hospital", "published": "2026-03-01", "retention": "until 2027"}


def test_the_block_is_read_as_it_is_written(content):
    text = "deployment: {curator: ' City Hospital ', published: 2026-03-01, retention: until 2027}"
    spec = Spec.from_mapping(content | parse_mapping(text, "mnist.yaml"))
    assert spec.deployment.to_plain() == spec.to_plain()["deployment"] == SAID
    assert "deployment" not in Spec.from_mapping(content).to_plain()


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("curator", " ", "Expected a curator in words, got curator=' ' (deployment.curator in mnist.yaml)"),
        ("contact", 3, "Expected a contact in words"),
        ("published", "soon", "Expected a day, YYYY-MM-DD, got published='soon'"),
        ("owner", "x", "Unknown key 'owner' (deployment.owner in mnist.yaml)"),
    ],
)
def test_what_is_no_such_statement_is_refused(content, key, value, told):
    assert told in spec_error(content | {"deployment": {key: value}})


def test_nothing_that_is_trained_or_priced_depends_on_it(digits):
    bare = Spec.from_mapping(small_content())
    said = Spec.from_mapping(small_content() | {"deployment": SAID})
    one, other = plan_sweep(bare, digits), plan_sweep(said, digits)
    assert other.claim.deployment == SAID
    assert one.claim == replace(other.claim, deployment={})
    assert other.announcement == one.announcement
    assert (one.shared, one.spending, one.first) == (other.shared, other.spending, other.first)
    assert bare.space.resolve({}) == said.space.resolve({})
    assert set(SAID) <= set(DeploymentSettings.model_fields)
