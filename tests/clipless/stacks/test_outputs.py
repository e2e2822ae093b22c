"""What a stack says of rows that are scored is what each of its models says by itself."""

from typing import Any

import pytest
import torch

import clipless
from clipless.certificates.certify import Measured
from clipless.certificates.outputs import Outputs
from clipless.datasets import Split
from clipless.errors import InvalidBoundError
from clipless.network import Network
from clipless.projections import SpectralBall
from clipless.stacks import Member, fit_stack
from clipless.training.averaging import PolynomialAverage

from .members import ARCHITECTURES, member, split, weights

SCORED = split(seed=7)
RADII = ("0.01", "0.1", "1")
TOGETHER = {"cpl", "mlp", "mixer", "scattering"}  # whose layers with weights are dense, or convex potentials
AVERAGES = {"quick": PolynomialAverage(8, 0.5), "slow": PolynomialAverage(1, 0.5)}


def options(seed: int, classes: int = 3) -> dict[str, Any]:
    """Those of two classes, whose pairs are certified by the last layer, have last layers that move far."""
    far = {"optimizer": clipless.Adam(0.2), "options": {"constraint": SpectralBall(3.0)}} if classes == 2 else {}
    return {"classes": classes, "averages": AVERAGES, "averaging": 0.8 if seed == 1 else None, **far}


def same(found: Outputs, model: Network, rows: Split = SCORED) -> bool:
    """Outputs are all that is scored: the model that is handed over beside them is another one."""
    near = {"rtol": 1e-6, "atol": 1e-9}
    alone = Outputs.of(model, rows)
    return (
        torch.allclose(found.logits, alone.logits, **near)
        and torch.allclose(found.radii, alone.radii, **near)
        and found.measured.bounds == alone.measured.bounds
        and torch.equal(found.measured.reach, alone.measured.reach)
        and clipless.evaluate(STRANGER, rows, RADII, outputs=found) == clipless.evaluate(model, rows, RADII)
    )


STRANGER = member(0).model


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("architecture", "classes"),
    [
        *(
            pytest.param(one, 3, marks=[pytest.mark.long] * (one in ("wide-resnet", "vgg")), id=one)
            for one in ARCHITECTURES
        ),
        pytest.param("mlp", 2, id="mlp-2"),
    ],
)
def test_outputs_are_those_of_each_model_by_itself(architecture: str, classes: int) -> None:
    members = [member(seed, architecture=architecture, epochs=2, **options(seed, classes)) for seed in range(3)]
    told, scored = 0, split(7, classes)
    for place, epoch in fit_stack(members, split(0, classes), scored=scored):
        model = members[place].model
        assert set(epoch.outputs) == ({"", *AVERAGES} if architecture in TOGETHER else set())
        if epoch.outputs:
            assert same(epoch.outputs[""], model, scored)
        for name in AVERAGES if epoch.outputs else ():
            with epoch.averages[name]():
                assert same(epoch.outputs[name], model, scored)
        told += 1
    assert told == 6


def scores_alone(one: Member, trained: Split, scored: Split) -> list[dict[str, float]]:
    found = []
    for epoch in clipless.fit(
        one.model,
        one.loss,
        trained,
        one.plan,
        optimizer=one.optimizer,
        averaging=one.averaging,
        averages=one.averages,
        source=one.source,
    ):
        found.append(clipless.evaluate(one.model, scored, RADII))
        for name in AVERAGES:
            with epoch.averages[name]():
                found.append(clipless.evaluate(one.model, scored, RADII))
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("architecture", "classes"),
    [
        *(pytest.param(one, 3, marks=[pytest.mark.long] * (one == "scattering"), id=one) for one in sorted(TOGETHER)),
        pytest.param("mlp", 2, id="mlp-2"),
    ],
)
def test_members_have_the_scores_of_the_trainings_alone(architecture: str, classes: int) -> None:
    """Those of averages too, while the model holds the weights of the epoch."""
    trained, scored = split(0, classes), split(7, classes)
    members, same_ones = (
        [member(seed, architecture=architecture, **options(seed, classes)) for seed in range(3)] for _ in range(2)
    )
    alone = [scores_alone(one, trained, scored) for one in same_ones]
    found: list[list[dict[str, float]]] = [[], [], []]
    for place, epoch in fit_stack(members, trained, scored=scored):
        for outputs in epoch.outputs.values():
            found[place].append(clipless.evaluate(members[place].model, scored, RADII, outputs=outputs))
    for ours, theirs in zip(found, alone, strict=True):
        assert len(ours) == len(theirs)
        assert all(a == pytest.approx(b, abs=1e-12) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.long
def test_looking_changes_no_weight() -> None:
    looked, unlooked = ([member(seed, **options(seed)) for seed in range(3)] for _ in range(2))
    for _ in fit_stack(looked, split(), scored=SCORED):
        pass
    for _ in fit_stack(unlooked, split()):
        pass
    for one, other in zip(looked, unlooked, strict=True):
        assert torch.equal(weights(one.model), weights(other.model))


def test_a_member_whose_weights_have_no_bounds_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    members = [member(seed, epochs=1, **options(seed)) for seed in range(3)]

    def of(model: Network, device: torch.device) -> Measured:
        if model is members[1].model:
            raise InvalidBoundError("no bound")
        return measured(model, device)

    measured = Measured.of
    monkeypatch.setattr(Measured, "of", of)
    told = dict(iter(fit_stack(members, split(), scored=SCORED)))
    assert told[1].outputs == {}
    for place in (0, 2):
        assert same(told[place].outputs[""], members[place].model)


def test_what_a_member_resumes_with_is_not_looked_at(tmp_path: Any) -> None:
    first = member(0, checkpoint=tmp_path / "state", epochs=2)
    next(iter(fit_stack([first], split())))
    again = [member(0, checkpoint=tmp_path / "state", epochs=2), member(1, epochs=2)]
    told = [(place, epoch.epoch, bool(epoch.outputs)) for place, epoch in fit_stack(again, split(), scored=SCORED)]
    assert told == [(0, 1, False), (0, 2, True), (1, 1, True), (1, 2, True)]


def test_outputs_are_not_shown() -> None:
    one = member(0, epochs=1)
    ((_, epoch),) = fit_stack([one], split(), scored=SCORED)
    assert "tensor" not in repr(epoch)
    assert "tensor" not in repr(epoch.outputs[""])


def test_no_rows_give_no_outputs() -> None:
    none = Split(SCORED.x[:0], SCORED.y[:0])
    ((_, epoch),) = fit_stack([member(0, epochs=1)], split(), scored=none)
    assert epoch.outputs == {}
