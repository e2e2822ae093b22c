"""No step makes the host wait for its device, on a device that holds no numbers at which it could look.

On torch's ``meta`` device whatever asks for a value raises; what asks inside of a kernel's wrapper (eigensolvers,
comparisons of whole tensors), and copies of tensors between host and device, are refused by a dispatch mode here.
"""

from functools import partial
from itertools import product
from unittest.mock import Mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import clipless
from clipless import scalars, zoo
from clipless.bounds import bound_network
from clipless.datasets import Split
from clipless.guards import exact_sums
from clipless.layers import ClipGradient, Dense, InputBall, Residual, ScaleByQuantile, Standardise
from clipless.losses import loss_lipschitz
from clipless.network import Network
from clipless.plans import placement, sensitivities
from clipless.plans.clipping import AdaptiveClipping
from clipless.plans.freezing import Freezing
from clipless.plans.method import Method, Schedule
from clipless.privacy import keystream
from clipless.privacy.randomness import SecureSource
from clipless.projections import CONSTRAINTS, build_constraint
from clipless.stacks import Member, member_training
from clipless.stacks.member_training import FixedFeatures, MemberTraining
from clipless.stacks.stack import RunningStack
from clipless.training.averaging import PolynomialAverage
from clipless.training.trainer import PrivateTrainer
from tests.clipless.factories import RecordingSource
from tests.clipless.zoo.test_zoo import SMALL

SHAPE, ROWS, CLASSES = (1, 8, 8), 40, 4
LARGE = ("resnet", "wide-resnet", "vgg", "patch-net")  # whose kinds of layers others have too
META = torch.device("meta")
PRIVATE = {method: {} for method in Method if method.bounded} | {Method.DP_SGD: {"clip_norm": 1.0}}


class Apart(TorchDispatchMode):
    """Refuses what waits for a device, and tensors that travel to or from it."""

    WAITING = frozenset(
        [
            "_local_scalar_dense",
            "item",
            "equal",
            "is_nonzero",
            "nonzero",
            "masked_select",
            "unique",
            "_unique2",
            "repeat_interleave",
            "_linalg_eigh",
            "_linalg_svd",
            "_linalg_eigvals",
            "linalg_eig",
            "linalg_cholesky",
            "_linalg_solve_ex",
            "linalg_inv_ex",
            "_linalg_check_errors",
            "bincount",
        ]
    )

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        del types
        name = operation._schema.name.removeprefix("aten::")
        given = [a for a in (*args, *(kwargs or {}).values()) if isinstance(a, torch.Tensor)]
        found = operation(*args, **(kwargs or {}))
        places = {tensor.device.type for tensor in given if tensor.dim()} | _device(found)
        if "meta" in places and (name in self.WAITING or len(places) > 1):
            raise RuntimeError(f"{name} makes the host wait")
        return found


def _device(found):
    return {found.device.type} if isinstance(found, torch.Tensor) else set()


class Words(SecureSource):  # type: ignore[misc]
    """Words without the many operations that make them."""

    def words(self, count, device, purpose):
        del purpose
        return torch.empty(count, dtype=torch.int64, device=device)


@pytest.fixture(autouse=True)
def _no_self_test(monkeypatch):
    """The search for an exact product of digits looks at products, once for each device."""
    monkeypatch.setattr(exact_sums, "_multiplier", lambda _: exact_sums._int8)
    monkeypatch.setattr(placement, "is_apart", lambda *_: True)  # whose answer is looked at, once for each training


def network(name="mlp", **options):
    generator = torch.Generator().manual_seed(0)
    return zoo.build(name, SHAPE, CLASSES, input_norm=2.0, generator=generator, **SMALL[name], **options)


def take_steps(model, method=Method.CLIPLESS, *, loss=None, fit=None, source=None, **plan):
    """One step that makes what is kept, then one of two passes in which nothing may wait."""
    loss = loss or clipless.TauCCE(0.5)
    planned = clipless.make_plan(
        *(model, loss), population=ROWS, batch_size=8, delta=1e-3, noise_multiplier=1.0, epochs=2, method=method,
        **{**PRIVATE.get(method, {}), **plan},
    )  # fmt: skip
    split = Split(torch.zeros(ROWS, *model.input_shape, device=META), torch.zeros(ROWS, dtype=torch.long, device=META))
    trainer = PrivateTrainer(
        *(model.to(META), loss, split, planned, clipless.Adam(1e-3), 20),
        source or Words(),
        **{"averages": {"slow": PolynomialAverage(3)}, "averaging": 0.9} | (fit or {}),
    )
    trainer.step(torch.zeros(3, dtype=torch.long, device=META))
    with Apart():
        trainer.step(torch.zeros(7, dtype=torch.long, device=META))
    return trainer


def marks(method, name):
    """Every architecture with the method that needs most of it, and every method with two of them, at each run."""
    is_short = name not in LARGE if method is Method.CLIPLESS else name in ("mlp", "convnet")
    return [] if is_short else [pytest.mark.long]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("method", "name"), [pytest.param(m, n, marks=marks(m, n)) for m, n in product(PRIVATE, SMALL)]
)
def test_no_step_of_any_architecture_waits(method, name):
    take_steps(network(name, bias=method is not Method.LIP_DP_SGD), method)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("constraint", [name for name in CONSTRAINTS if name != "free"])
def test_no_projection_waits(constraint):
    take_steps(network("lenet", constraint=build_constraint(constraint)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("activation", zoo.ACTIVATIONS)
def test_no_activation_waits(activation):
    take_steps(network("mlp", activation=activation), follow_weights=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "method"),
    [
        *((name, Method.CLIPLESS) for name in ("mlp", "scattering")),
        pytest.param("lenet", Method.LIP_DP_SGD, marks=pytest.mark.long),
        *(pytest.param(name, Method.CLIPLESS, marks=pytest.mark.long) for name in ("lenet", "mixer")),
    ],
)
def test_no_sensitivity_that_follows_the_weights_waits(name, method):
    take_steps(network(name, bias=True), method, follow_weights=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "loss", [clipless.TauBCE(1.0), clipless.MultilabelBCE(1.0), clipless.HKR(), clipless.KCosine()]
)
def test_no_loss_waits(loss):
    outputs = 1 if isinstance(loss, clipless.TauBCE) else CLASSES
    model = Network([InputBall(2.0), Dense(6, 8), Dense(8, outputs)], (6,))
    take_steps(model, loss=loss, follow_weights=True)


def clipped(*, learned=True):
    front = [InputBall(2.0), Dense(6, 6), Residual([Dense(6, 6)], 0.5, learned=learned)]
    return Network([*front, ClipGradient(0.7), Dense(6, CLASSES)], (6,))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("clipping", [AdaptiveClipping(), Schedule.COSINE], ids=["adaptive", "schedule"])
def test_no_clipping_norm_waits(clipping, follow):
    trainer = take_steps(clipped(), clipping=clipping, follow_weights=follow)
    if isinstance(clipping, AdaptiveClipping):
        assert not scalars.on_host(trainer.clip_norms.factor)


def test_no_layer_that_comes_to_rest_waits():
    take_steps(network("mlp"), freezing=Freezing(layers=1, after=0.01))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", [{"exact_norms": True}, {"averaging": None, "averages": {}}])
def test_no_way_of_training_waits(options):
    take_steps(network("lenet"), fit=options)


@pytest.mark.long
def test_ghost_clipping_does_not_wait():
    take_steps(network("mlp"), Method.DP_SGD, fit={"ghost_clipping": True})


def test_no_noise_of_the_keystream_waits(monkeypatch):
    monkeypatch.setattr(keystream, "_LEAST_BLOCKS", 8)
    take_steps(network("mlp"), source=SecureSource())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "make", [partial(Standardise, 6, 2.0, 0.1), partial(ScaleByQuantile, 0.1, 3.0)], ids=["mean", "quantile"]
)
def test_no_step_behind_private_statistics_waits(make, monkeypatch):
    layer, plain = make(), make()
    layer.to(META)
    with Apart():
        layer.settle(torch.zeros(layer.contributions(torch.zeros(1, 6, device=META)).shape[1], device=META), (6,))
    layer = plain
    monkeypatch.setattr("clipless.training.private_training.release_statistics", lambda *_, **__: None)
    take_steps(Network([layer, InputBall(1.0), Dense(6, CLASSES)], (6,)), follow_weights=True)


@pytest.mark.parametrize(
    "look", [lambda t: t.sum().item(), lambda t: bool(t.any()), lambda t: t[t > 0], lambda t: t.cpu(),
             lambda t: torch.equal(t, t), torch.linalg.eigvalsh, lambda t: t.tolist(), torch.nonzero,
             lambda t: torch.zeros(3, 3).to(t.device)]
)  # fmt: skip
def test_what_waits_is_refused_here(look):
    with Apart(), pytest.raises((RuntimeError, NotImplementedError)):
        look(torch.zeros(3, 3, device=META))


def test_a_step_without_rows_waits_for_nothing():
    trainer = take_steps(network("mlp"))
    with Apart():
        trainer.step(torch.zeros(0, dtype=torch.long, device=META))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "plan",
    [
        {"follow_weights": True},
        {"clipping": AdaptiveClipping()},
        {"clipping": AdaptiveClipping(), "follow_weights": True},
    ],
)
@pytest.mark.parametrize("method", [Method.CLIPLESS, Method.LIP_DP_SGD])
def test_numbers_of_a_device_train_as_those_of_the_host(plan, method, monkeypatch):
    """Sensitivities, noise and clipping norms are the same ones, up to how tightly norms are found."""
    generator = torch.Generator().manual_seed(2)
    split = Split(torch.randn(ROWS, 6, generator=generator), torch.randint(CLASSES, (ROWS,), generator=generator))
    trained = []
    for host in ("cpu", "elsewhere"):
        monkeypatch.setattr(scalars, "_HOST", host)
        torch.manual_seed(3)
        model = clipped()
        loss = clipless.TauCCE(0.5)
        planned = clipless.make_plan(
            *(model, loss),
            population=ROWS,
            batch_size=8,
            delta=1e-3,
            noise_multiplier=1.0,
            epochs=2,
            method=method,
            **plan,
        )
        epochs = list(clipless.fit(model, loss, split, planned, source=RecordingSource(7), micro_batch_size=6))
        trained.append((torch.cat([p.detach().flatten() for p in model.parameters()]), epochs[-1].epsilon))
    (weights, epsilon), (others, other_epsilon) = trained
    torch.testing.assert_close(others, weights, rtol=0, atol=2e-3)
    assert epsilon == other_epsilon


def test_sensitivities_of_a_device_are_those_of_the_host(monkeypatch):
    model = network("lenet", bias=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)
    loss = clipless.TauCCE(0.5)
    plan = clipless.make_plan(
        *(model, loss), population=ROWS, batch_size=8, delta=1e-3, noise_multiplier=1.0, epochs=2, follow_weights=True
    )
    here = plan.at(model, loss)
    monkeypatch.setattr(scalars, "_HOST", "elsewhere")
    there = plan.at(model, loss)
    for name, delta in here.sensitivities.items():
        assert delta * (1 - 1e-9) <= there.sensitivities[name].item() <= delta * 1.06  # a grid of logit norms
        assert there.noise_stds[name].item() >= here.noise_stds[name] * (1 - 1e-9)


def test_weights_that_are_undefined_leave_the_planned_sensitivities(monkeypatch):
    model, loss = network("mlp"), clipless.TauCCE(0.5)
    plan = clipless.make_plan(
        *(model, loss), population=ROWS, batch_size=8, delta=1e-3, noise_multiplier=1.0, epochs=2, follow_weights=True
    )
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    monkeypatch.setattr(scalars, "_HOST", "elsewhere")
    moving = plan.at(model, loss).sensitivities
    assert all(moving[name].item() <= delta for name, delta in plan.sensitivities.items())


@pytest.mark.parametrize("value", [1e-25, 1e-9, 0.3, 1.0, 2.0, 2.0 - 2**-52, 3.7e12])
@pytest.mark.parametrize("steps", [1.0, 1000.0, 2.0**40])
def test_grids_of_numbers_of_a_device_are_those_of_the_host(value, steps):
    assert exact_sums.grid(torch.tensor(value, dtype=torch.float64), steps).item() == exact_sums.grid(value, steps)


@pytest.mark.parametrize("loss", [clipless.TauCCE(2.0), clipless.MultilabelBCE(1.0)])
@pytest.mark.parametrize("share", [1e-9, 0.004, 0.3, 0.7701, 0.95, 1.0])
def test_the_constant_of_a_loss_is_one_of_a_ball_that_is_hardly_larger(loss, share, monkeypatch):
    model = Network([InputBall(2.0), Dense(6, CLASSES)], (6,))
    norm = share * bound_network(model).output.norm
    monkeypatch.setattr(sensitivities, "bound_network", lambda *_: bound_network(model))
    bounds = Mock(output=Mock(norm=torch.tensor(norm, dtype=torch.float64), shape=(CLASSES,)))
    monkeypatch.setattr(scalars, "_HOST", "elsewhere")
    found = sensitivities._loss_constant(model, loss, bounds).item()
    least = 0.95**127 * bound_network(model).output.norm
    exact, next_one = (loss_lipschitz(loss, CLASSES, logit_norm=n) for n in (norm, max(norm / 0.949, least)))
    assert exact <= found <= next_one


class Downloads(Apart):
    """Refuses what waits for a device and tensors that come from it; numbers of members may be sent to it."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        given = [a for a in (*args, *(kwargs or {}).values()) if isinstance(a, torch.Tensor)]
        if operation._schema.name == "aten::_to_copy" and all(tensor.device.type == "cpu" for tensor in given):
            return operation(*args, **(kwargs or {}))
        return super().__torch_dispatch__(operation, types, args, kwargs)


def take_stacked_steps(monkeypatch, name, method=Method.CLIPLESS, *, front=(), **plan):
    """One step of a stack of two that makes what is kept, then one of two passes in which nothing may wait."""
    # It looks at the device, before any step: at addresses, which are all alike here.
    monkeypatch.setattr(member_training, "check_training", lambda model, *_: model)
    data = Split(torch.zeros(ROWS, *SHAPE, device=META), torch.zeros(ROWS, dtype=torch.long, device=META))
    features, trainings = FixedFeatures(data), []
    for number in range(2):
        model, loss = network(name, bias=method is not Method.LIP_DP_SGD), clipless.TauCCE(0.5 + number)
        model = Network([*list(model.layers)[:-1], *front, model.layers[-1]], SHAPE) if front else model
        planned = clipless.make_plan(
            *(model, loss), population=ROWS, batch_size=8, delta=1e-3, noise_multiplier=1.0 + number, epochs=2,
            method=method, **plan,
        )  # fmt: skip
        member = Member(
            model=model.to(META),
            loss=loss,
            plan=planned,
            optimizer=clipless.Adam(1e-3),
            source=Words(),
            averaging=0.9,
            averages={"slow": PolynomialAverage(3)},
        )
        trainings.append(MemberTraining(member, data, 20, features))
    running = RunningStack(trainings, 20)
    draws = [torch.zeros(rows, dtype=torch.long, device=META) for rows in (7, 3)]
    running.step(draws)
    with Downloads():
        running.step(draws)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in (*LARGE, "convnet"))) for name in SMALL]
)
def test_no_step_of_a_stack_waits(name, monkeypatch):
    take_stacked_steps(monkeypatch, name)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlp", "lenet"])
@pytest.mark.parametrize("method", [Method.CLIPLESS, Method.LIP_DP_SGD])
def test_no_sensitivity_of_a_stack_that_follows_the_weights_waits(name, method, monkeypatch):
    take_stacked_steps(monkeypatch, name, method, follow_weights=True)


def test_what_comes_from_the_device_is_refused_in_a_stack():
    with pytest.raises(RuntimeError, match=r"makes the host wait|Cannot copy|meta"), Downloads():
        torch.zeros(3, device=META).cpu()
