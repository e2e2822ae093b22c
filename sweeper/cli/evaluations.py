"""A federated evaluation as lines of text."""

from collections.abc import Iterator

from sweeper.federated.evaluation import FederatedEvaluation

_SHOWN_RADII = 6


def evaluation_lines(found: FederatedEvaluation) -> Iterator[str]:
    """Yield what ``sweeper evaluate`` prints."""
    content = found.to_json()
    yield f"{len(found.included)} of {len(found.federation.parties)} parties, {found.population} rows as declared"
    if found.left_out:
        yield f"left out: {', '.join(found.left_out)}"
    yield from found.refused.values()
    if "auroc" in content:
        low, high = content["auroc_interval"]
        yield f"AUROC {content['auroc']:.3f} ({low:.3f} to {high:.3f} by the noise, 95 %)"
    if "certified" in content:
        band, points = content["certified_band"], content["certified"]
        yield f"accuracy {content['accuracy']:.3f} (all of the curve within {band:.3f} by the noise, 95 %)"
        for point in points[:: max(1, len(points) // _SHOWN_RADII)][1:]:
            yield f"certified at {point['radius']:.3g}: {point['share']:.3f}"
    yield found.statement
