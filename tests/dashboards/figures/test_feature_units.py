from dataclasses import replace

from dashboards.figures.sweep import front


def test_titles_say_that_radii_are_in_feature_units(sweep):
    units = {"radius_unit": "units of the features of tiny"}
    behind = replace(sweep, result=replace(sweep.result, claim=replace(sweep.result.claim, **units)))
    assert "radii in feature units" in front.info(behind).title
    assert "feature units" not in front.info(sweep).title
