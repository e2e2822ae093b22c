"""Both projections on matrices of every kind: what they promise of singular values holds."""

import pytest
import torch

from clipless import scalars
from clipless.layers import Conv2d, Dense
from clipless.projections import (
    CONSTRAINTS,
    FixedNorm,
    Free,
    Orthogonal,
    SpectralBall,
    Standardised,
    build_constraint,
    fixed_norm,
    initial_gain,
    orthogonal,
    spectral_ball,
)

SLACK = 1 + 1e-6


@pytest.fixture(autouse=True, params=["host", "device"])
def _place(request, monkeypatch):
    """Matrices are projected as on the host, and as on a device for which nothing waits."""
    if request.param == "device":
        monkeypatch.setattr(scalars, "_HOST", "elsewhere")


def norm(matrix):
    return torch.linalg.matrix_norm(matrix.double(), 2).item()


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_singular_values(values, rows=None, columns=None, seed=0):
    """A float64 matrix of the given shape with the given singular values."""
    count = len(values)
    left = torch.linalg.qr(random(rows or count, count, seed=seed))[0]
    right = torch.linalg.qr(random(columns or count, count, seed=seed + 1))[0]
    return left @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ right.mT


MATRICES = {
    "wide": random(6, 40),
    "tall": random(40, 6),
    "square": random(32, 32),
    "row": random(1, 9),
    "column": random(9, 1),
    "one-by-one": torch.tensor([[-3.0]]),
    "zero": torch.zeros(4, 6),
    "rank-one": torch.ones(8, 5),
    "rank-deficient": with_singular_values([5.0, 2.0, 0.0, 0.0], 7, 9),
    "identity": torch.eye(5),
    "clustered": with_singular_values([2.0, 2.0, 2.0, 1e-4], 4, 4),
    "scaled-up": random(8, 12) * 1e4,
    "tiny": random(8, 12) * 1e-30,
    "denormal": random(8, 12) * 1e-42,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_orthogonal_leaves_no_singular_value_above_one(name, iterations):
    assert norm(orthogonal(MATRICES[name].float(), iterations)) <= SLACK


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("radius", [0.5, 1.0, 3.0])
def test_the_spectral_ball_leaves_no_singular_value_above_its_radius(name, radius):
    assert norm(spectral_ball(MATRICES[name].float(), radius)) <= radius * SLACK


@pytest.mark.sampled(3)
@pytest.mark.parametrize("largest", [30.0, 900.0, 3e3, 9e3, 1e6])
@pytest.mark.parametrize("excess", [1e-6, 1e-5, 1e-4, 1e-3])
def test_the_spectral_ball_holds_beside_a_far_larger_singular_value(largest, excess):
    matrix = with_singular_values([1.0 + excess * i / 38 for i in range(39)] + [largest])
    assert norm(spectral_ball(matrix, 1.0)) <= 1 + 1e-7


@pytest.mark.parametrize("scale", [1e12, 1e18, 1e20, 1e38])
def test_orthogonal_holds_for_huge_entries(scale):
    assert norm(orthogonal((random(8, 12) * scale).clamp(-3e38, 3e38).float())) <= SLACK


@pytest.mark.parametrize("scale", [1e12, 1e20, 1e38])
def test_the_spectral_ball_holds_for_huge_entries(scale):
    assert norm(spectral_ball((random(8, 12) * scale).clamp(-3e38, 3e38).float(), 1.0)) <= SLACK


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(20))
def test_no_shape_or_scale_escapes_either_projection(seed):
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.randint(1, 24, (2,), generator=generator).tolist()
    scale = 10.0 ** (torch.rand((), generator=generator).item() * 8 - 4)
    weight = torch.randn(rows, columns, generator=generator) * scale
    assert norm(orthogonal(weight)) <= SLACK
    assert norm(spectral_ball(weight, 0.7)) <= 0.7 * SLACK


def test_singular_values_from_zero_to_two_land_between_zero_and_one():
    values = torch.linspace(0.0, 2.0, 64, dtype=torch.float64)
    expected = (1.5 * values - 0.5 * values**3).abs().sort(descending=True).values
    # A diagonal has the least row sums: up to 1.999 nothing is scaled before the iteration.
    found = torch.linalg.svdvals(orthogonal(torch.diag(values.clamp(max=1.999))))
    assert found.max() <= 1 + 1e-12
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)
    dense = torch.linalg.svdvals(orthogonal(with_singular_values(values.tolist(), 80, 70)))
    assert dense.min() >= 0
    assert dense.max() <= 1 + 1e-12


def test_iterations_approach_the_nearest_orthonormal_matrix():
    weight = with_singular_values([1.4, 1.0, 0.7, 0.4], 4, 9)
    left, _, right = torch.linalg.svd(weight, full_matrices=False)
    distances = [(orthogonal(weight, n) - left @ right).norm().item() for n in (1, 3, 12)]
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 1e-6


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5)])
def test_orthonormal_matrices_are_left_alone(shape):
    weight = with_singular_values([1.0] * min(shape), *shape)
    torch.testing.assert_close(orthogonal(weight), weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(spectral_ball(weight, 1.0), weight, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6)])
@pytest.mark.parametrize("radius", [0.6, 1.0, 10.0])
def test_the_spectral_ball_is_the_nearest_matrix(shape, radius):
    weight = random(*shape) * 0.7
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    nearest = left @ torch.diag(values.clamp(max=radius)) @ right
    torch.testing.assert_close(spectral_ball(weight, radius), nearest, rtol=0, atol=1e-10)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(5))
def test_no_other_matrix_of_the_ball_is_nearer(seed):
    weight = random(5, 7, seed=seed)
    found = spectral_ball(weight, 1.0)
    for other in range(50):
        step = random(5, 7, seed=100 * seed + other) * 0.1
        rival = spectral_ball(found + step, 1.0)
        assert (weight - found).norm() <= (weight - rival).norm() + 1e-9


def test_the_spectral_ball_leaves_small_singular_values_alone():
    weight = with_singular_values([3.0, 0.9, 0.2, 0.01], 6, 4)
    found = torch.linalg.svdvals(spectral_ball(weight, 1.0))
    torch.testing.assert_close(found, torch.tensor([1.0, 0.9, 0.2, 0.01], dtype=torch.float64), rtol=0, atol=1e-10)
    inside = with_singular_values([0.9, 0.2], 3, 2)
    torch.testing.assert_close(spectral_ball(inside, 1.0), inside, rtol=0, atol=1e-12)


@pytest.mark.parametrize("project", [orthogonal, lambda w: spectral_ball(w, 1.0)])
def test_projections_keep_dtype_and_shape_and_their_argument(project):
    for dtype in (torch.float32, torch.float64):
        weight = random(3, 8).to(dtype)
        before = weight.clone()
        projected = project(weight)
        assert (projected.dtype, projected.shape) == (dtype, weight.shape)
        assert torch.equal(weight, before)


def test_a_weight_that_is_not_finite_stays_so():
    weight = random(3, 8).float()
    weight[1, 1] = float("nan")
    assert not orthogonal(weight).isfinite().all()


@pytest.mark.parametrize("constraint", [Orthogonal(), Orthogonal(3), SpectralBall(0.5), SpectralBall(2.0)])
def test_layers_are_projected_onto_their_constraint(constraint):
    for layer in (Dense(9, 5, constraint), Conv2d(2, 5, 3, constraint=constraint)):
        with torch.no_grad():
            layer.weight.mul_(7.0).add_(0.1)
        layer.project()
        assert norm(layer.weight.detach().flatten(1)) <= constraint.radius * SLACK


@pytest.mark.parametrize("constraint", [Orthogonal(), SpectralBall(0.5), SpectralBall(2.0)])
def test_initial_weights_are_within_their_constraint(constraint):
    for layer in (Dense(9, 5, constraint), Dense(5, 9, constraint), Conv2d(2, 5, 3, constraint=constraint)):
        assert norm(layer.weight.detach().flatten(1)) == pytest.approx(constraint.radius, rel=1e-5)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Orthogonal(0),
        lambda: Orthogonal(float("nan")),
        lambda: SpectralBall(0.0),
        lambda: SpectralBall(-1.0),
        lambda: SpectralBall(float("inf")),
        lambda: SpectralBall(float("nan")),
    ],
)
def test_bad_constraints_are_refused(build):
    with pytest.raises(ValueError, match="Expected"):
        build()


# One of each kind, tight and wide; `free` promises nothing.
EVERY_CONSTRAINT = {
    "orthogonal": [Orthogonal(), Orthogonal(4)],
    "spectral_ball": [SpectralBall(0.5), SpectralBall(3.0)],
    "fixed_norm": [FixedNorm(0.5), FixedNorm(3.0)],
    "standardised": [Standardised(), Standardised(4)],
    "free": [Free()],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", EVERY_CONSTRAINT)
@pytest.mark.parametrize("matrix", MATRICES)
def test_no_matrix_is_left_with_a_norm_above_the_radius_of_any_constraint(name, matrix):
    """Nor with a larger one after another projection, nor when it starts on the border and is pushed outwards."""
    for constraint in EVERY_CONSTRAINT[name]:
        weight = MATRICES[matrix].float()
        for push in (1.0, 1.5, 0.9):
            weight = constraint.project(weight * push)
            assert norm(weight) <= constraint.radius * SLACK


def test_every_constraint_has_a_name():
    assert {
        "orthogonal": Orthogonal,
        "spectral_ball": SpectralBall,
        "fixed_norm": FixedNorm,
        "standardised": Standardised,
        "free": Free,
    } == CONSTRAINTS


def test_a_constraint_is_built_with_a_radius_where_it_has_one():
    assert build_constraint("fixed_norm", 3.0) == FixedNorm(3.0)
    assert build_constraint("spectral_ball") == SpectralBall(1.0)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("radius", [0.5, 1.0, 3.0])
def test_the_fixed_norm_is_exact_and_keeps_the_direction(name, radius):
    matrix = MATRICES[name].float()
    found = fixed_norm(matrix, radius)
    assert norm(found) <= radius * SLACK
    if bool(matrix.any()):
        assert norm(found) >= radius / SLACK
        cosine = (found.double() * matrix.double()).sum() / found.double().norm() / matrix.double().norm()
        assert cosine > 1 - 1e-5


@pytest.mark.parametrize("scale", [1e20, 3e38, 1e-40])
def test_the_fixed_norm_holds_for_huge_and_tiny_entries(scale):
    matrix = (random(8, 12).clamp(-1, 1) * scale).float()
    assert norm(fixed_norm(matrix, 1.0)) == pytest.approx(1.0, rel=1e-6)


def test_free_weights_are_left_alone_and_unbounded():
    weight = random(3, 4) * 100
    assert Free().project(weight) is weight
    assert Free().radius == float("inf")
    assert initial_gain(Free()) == pytest.approx(2**0.5)
    assert initial_gain(FixedNorm(0.3)) == 0.3
