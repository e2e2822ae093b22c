"""What we call of torch that is not public: it is there, and does what privacy rests on, in the torch that is installed.

`pyproject.toml` bounds torch's range from above because of these names. A newer torch is tried with this file first.
"""

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from clipless.errors import UnsupportedError
from clipless.guards import exact_sums
from clipless.guards.exact_sums import integer_product
from clipless.plans import trainable
from clipless.plans.trainable import check_trainable
from clipless.zoo import mlp

CPU = torch.device("cpu")
LARGEST, ADDENDS = 127, 2**17  # 127^2 2^17 < 2^31: the most that one product adds up in 32 bits


@pytest.fixture
def product():
    """The private product of 8-bit integers, as the guard calls it."""
    assert hasattr(torch, "_int_mm"), f"torch {torch.__version__} has no _int_mm: see guards/exact_sums.py"
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("this processor has no instructions for products of 8-bit integers")
    return exact_sums._int8


@pytest.fixture
def chosen_anew():
    """Forgets which product was found to be exact, before and after."""
    exact_sums._multiplier.cache_clear()
    yield
    exact_sums._multiplier.cache_clear()


def integers(*shape, seed=0):
    return torch.randint(-LARGEST, LARGEST + 1, shape, generator=torch.Generator().manual_seed(seed)).to(torch.int8)


def is_exact(product, a, b):
    return torch.equal(product(a, b).double(), a.double() @ b.double())


def test_the_private_product_returns_32_bit_integers(product):
    found = product(integers(3, 5), integers(5, 2, seed=1))
    assert (found.dtype, found.shape) == (torch.int32, (3, 2))


def test_the_private_product_of_every_two_digits_is_exact(product):
    every = torch.arange(-LARGEST, LARGEST + 1).to(torch.int8)
    assert is_exact(product, every[:, None], every[None, :])


@pytest.mark.parametrize("left", [-LARGEST, -1, 1, LARGEST])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 7, 8, 31, 32, 33, 63, 64, 65, 255, 1023, 1025])
def test_sums_of_equal_digits_neither_saturate_nor_round(product, left, k):
    """Processors without instructions for it add pairs of products in 16 bits: the largest digits show it."""
    for right in (-LARGEST, 1, LARGEST):
        a, b = (torch.full(shape, digit, dtype=torch.int8) for shape, digit in (((5, k), left), ((k, 3), right)))
        assert torch.equal(product(a, b), torch.full((5, 3), left * right * k, dtype=torch.int32))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("m", [1, 2, 3, 4, 15, 16, 17, 33])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 16, 33])
def test_the_private_product_is_exact_for_every_shape_and_order_in_memory(product, m, n):
    for k in (1, 2, 3, 5, 16, 31, 64, 129):
        a, b = integers(m, k), integers(k, n, seed=1)
        for left in (a, a.mT.contiguous().mT):
            for right in (b, b.mT.contiguous().mT):
                assert is_exact(product, left, right), (m, k, n)


@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, -1)])
def test_as_many_addends_as_fit_32_bits_add_up_to_the_last_unit(product, signs):
    a = torch.full((2, ADDENDS), signs[0] * LARGEST, dtype=torch.int8)
    b = torch.full((ADDENDS, 3), signs[1] * LARGEST, dtype=torch.int8)
    a[1, 0] = 0
    whole = signs[0] * signs[1] * LARGEST**2
    assert product(a, b).tolist() == [[whole * ADDENDS] * 3, [whole * (ADDENDS - 1)] * 3]


@pytest.mark.usefixtures("product")
def test_one_addend_more_is_added_up_in_pieces():
    a = torch.full((1, ADDENDS + 1), LARGEST, dtype=torch.int8)
    b = torch.full((ADDENDS + 1, 2), LARGEST, dtype=torch.int8)
    found = integer_product(a, b)
    assert found.tolist() == [[float(LARGEST**2 * (ADDENDS + 1))] * 2]
    assert found.dtype == torch.float64
    assert LARGEST**2 * (2**31 // LARGEST**2) < 2**31 < LARGEST**2 * (2**31 // LARGEST**2 + 1)
    assert exact_sums._MOST_ADDENDS == ADDENDS <= 2**31 // LARGEST**2


@pytest.mark.usefixtures("chosen_anew")
def test_a_processor_with_an_exact_product_uses_it(product):
    assert exact_sums._multiplier(CPU) is (
        product if exact_sums._is_exact(product, CPU) else exact_sums._float32_blocks
    )


@pytest.mark.usefixtures("chosen_anew")
def test_without_the_private_product_sums_are_as_exact(monkeypatch):
    a, b = integers(9, 2049), integers(2049, 5, seed=1)
    monkeypatch.delattr(torch, "_int_mm")
    assert exact_sums._multiplier(CPU) is exact_sums._float32_blocks
    assert is_exact(integer_product, a, b)


@pytest.mark.sampled(4)
@pytest.mark.usefixtures("chosen_anew")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b: (a.int() @ b.int()).clamp(-(2**15), 2**15 - 1),
        lambda a, b: a.int() @ b.int() + 1,
        lambda a, b: (a.int() @ b.int())[:1],
        lambda a, b: (a.float() @ b.float()).to(torch.bfloat16),
        lambda a, b, transposed: a.int() @ b.int().mT if transposed else a.int() @ b.int(),
    ],
    ids=["saturates", "is off by one", "loses rows", "rounds", "takes other arguments"],
)
def test_a_private_product_that_is_wrong_is_not_used(wrong, monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(torch, "_int_mm", wrong)
    assert exact_sums._multiplier(CPU) is exact_sums._float32_blocks


# Hooks: a kind that we do not know could change a gradient behind the guard

OF_STATES = {f"register_{load}state_dict_{when}_hook" for load in ("", "load_") for when in ("pre", "post")}
OF_MODULES = {f"register_{kind}_hook" for kind in ("backward", "forward", "forward_pre")}
OF_MODULES |= {"register_full_backward_hook", "register_full_backward_pre_hook"}
OF_REGISTRATION = {f"register_module_{kind}_registration_hook" for kind in ("buffer", "module", "parameter")}


def registers(owner):
    return {name for name in dir(owner) if name.startswith("register") and "hook" in name}


def test_torch_has_no_kind_of_hook_that_we_do_not_know():
    assert registers(nn.Module) == OF_MODULES | OF_STATES
    every_module = {name.replace("register_", "register_module_") for name in OF_MODULES}
    assert registers(torch_module) == every_module | OF_REGISTRATION
    assert registers(torch.Tensor) == {"register_hook", "register_post_accumulate_grad_hook"}


@pytest.mark.parametrize("name", sorted(OF_MODULES))
def test_every_kind_of_hook_of_a_module_is_refused(name):
    model = mlp((4,), 2, input_norm=1.0, width=4)
    getattr(model.layers[1], name)(lambda *_: None)
    with pytest.raises(UnsupportedError, match="Expected no hooks on"):
        check_trainable(model)


@pytest.mark.parametrize("name", [*trainable._MODULE_HOOKS, *trainable._GLOBAL_HOOKS])
def test_a_torch_that_keeps_its_hooks_elsewhere_is_refused_in_one_sentence(name, monkeypatch):
    model = mlp((4,), 2, input_norm=1.0, width=4)
    if name in trainable._GLOBAL_HOOKS:
        monkeypatch.delattr(torch_module, name)
    else:
        del vars(model.layers[1])[name]
    with pytest.raises(UnsupportedError) as refused:
        check_trainable(model)
    assert str(refused.value).startswith(
        f"Expected a torch that lists its hooks in {name}, got torch {torch.__version__}"
    )


def test_averages_of_lists_are_those_of_the_public_function():
    a, b = ([torch.linspace(-1.0, end, 7) for end in ends] for ends in ((1.0, 2.0), (3.0, -4.0)))
    expected = [torch.lerp(x, y, 0.3) for x, y in zip(a, b, strict=True)]
    assert all(torch.equal(x, y) for x, y in zip(torch._foreach_lerp(a, b, 0.3), expected, strict=True))
    torch._foreach_lerp_(a, b, 0.3)
    assert all(torch.equal(x, y) for x, y in zip(a, expected, strict=True))
