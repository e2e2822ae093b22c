"""Checking a spec from Python."""

import sweeper
from sweeper.specification.spec import Spec
from tests.factories import small_content


def test_a_checked_spec_shows_its_price_and_its_first_configuration():
    content = small_content(privacy={"sweep_epsilon": 3.0, "delta": 1e-4}, model={"width": [16, 32]})
    found = sweeper.check(content, measure=False)
    shown = " ".join(repr(found).split())
    assert shown.startswith("small: valid. digits, N = ")
    assert found.plan.announcement in shown
    assert f"noise multiplier {found.previews[0].plan.noise_multiplier:.4g}" in shown
    assert "chosen for you (plan.chosen has values and reasons): search.rehearse" in shown
    assert found.estimate is None
    assert found._repr_html_().startswith("<p><b>small: valid.")
    assert found.plan.spec.digest == sweeper.check(Spec.from_mapping(content), measure=False).plan.spec.digest
