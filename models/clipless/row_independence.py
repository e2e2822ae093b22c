"""The test that a pass treats each row alone: its result depends on no place and on no other row.

Exact sums (`clipless.guards.exact_sums`) and scores of private rows rest on it. Kernels may break it: on a CPU they
round by memory address, by the tail of a vector and by the edge of a block, and Poisson sampling decides which rows
stand before a row. Then a row that joins moves others, one at a kink flips, and the price of sampling is lost.

Nothing here proves a kernel right. It tests the very pass that is to be taken: in its shape, on its device, with its
threads, forwards and backwards. Made-up rows stand in many places, some passes are filled with copies of one row, and
other rows are exchanged for wild ones. Every output and cotangent of every layer has to be the same, bit by bit,
wherever a row stands; so has its part in the sums. How a kernel rounds depends on shapes and addresses, and whether one
set of numbers shows it on luck: so there are hundreds of rows, and each training tests with its own weights again.

Shape letters: B rows of a pass, M members of a stack, R = M B, K made-up rows.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor, nn

Watch = Callable[[Tensor], None]
Kinks = Callable[[Tensor], Tensor]

VECTOR = 32  # rows, so that no row of any width is in the tail of a vector operation

_FEWEST, _MOST = 6, 16  # arrangements of a pass that is tested for the first time
_BRIEF = range(1, 2)  # of one whose shape has passed before, in this process: of many rows, some at kinks
_ENTRIES = 2**18  # of the rows of all arrangements, about
_TOGETHER = 64  # different rows in a pass, at most
_HALVINGS = 26  # from two rows to a kink between them
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WILD = (float("nan"), float("inf"), -1e30, 3.0)

_KNOWN: set[Hashable] = set()  # forms that passed


class Pass(Protocol):
    """A pass as it is to be taken."""

    def __call__(self, x: Tensor, chosen_B: Tensor, counts_B: Tensor, watch: Watch) -> Mapping[str, Tensor]:
        """Pass made-up rows on.

        Args:
            x: (B, ...) rows; a stack gives them to each of its members.
            chosen_B: which of the made-up rows each is, from 0 on; -1 for those that do not count.
            counts_B: bool; only these may enter sums.
            watch: to be called with what is computed for the rows on the way, (B, ...) or (R, ...).

        Returns:
            Exact sums over the rows that count.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of torch by which kernels choose how they round.

    Attributes:
        threads: of one operation, among which kernels divide their work.
        precision: of products in single precision.
        onednn: whether oneDNN may be used.
        deterministic: whether only deterministic kernels are.
    """

    threads: int
    precision: str
    onednn: bool
    deterministic: bool


@dataclass(frozen=True, slots=True)
class PassShape:
    """Everything by which kernels choose how they round in a pass.

    Attributes:
        key: whatever else tells this pass from others: layers, types, options; None where that cannot be told.
        rows: B.
        shape: of a row.
        device: of the pass.
    """

    key: Hashable
    rows: int
    shape: tuple[int, ...]
    device: torch.device

    @property
    def memory_key(self) -> Hashable:
        """The key of a remembered answer, with the settings of torch."""
        return self.key, self.rows, self.shape, str(self.device), arithmetic()


def arithmetic() -> Settings:
    """Return the settings that hold now."""
    return Settings(
        threads=torch.get_num_threads(),
        precision=torch.get_float32_matmul_precision(),
        onednn=bool(torch.backends.mkldnn.enabled),
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )


@contextmanager
def deterministic_convolutions() -> Iterator[None]:
    """Keep cuDNN inside the block to kernels that add in one order.

    By itself it takes some that add the parts of a row's cotangent as they come, so that no two passes of a row agree.
    """
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


def is_alone(passed: Pass, form: PassShape, kinks: Kinks | None = None, weights: Sequence[Tensor] = ()) -> bool:
    """Whether a pass treats each row alone, wherever it stands.

    A form is tested with made-up weights first, since weights may be such that nothing has to be rounded (zeros, say),
    as later ones are not; then, and again with every other weights in this process, briefly with those it has.

    Passes of several rows that are no whole vectors never pass: a tail may round one number in thousands otherwise,
    which no test of theirs is sure to meet.

    Args:
        passed: the pass, with the weights that it has now.
        form: its shape.
        kinks: the first layer, whose outputs made-up rows are to have near zero.
        weights: of the pass, which have other values for a while.

    Returns:
        False where it does not.
    """
    if form.rows > 1 and form.rows % VECTOR:
        return False
    known = form.key is not None and form.memory_key in _KNOWN
    usual = _ENTRIES // max(1, form.rows * prod(form.shape))
    arrangements = _BRIEF if known else range(max(_FEWEST, min(_MOST, usual)))
    generator = torch.Generator().manual_seed(len(arrangements))

    def holds(arrangements: range) -> bool:
        return all(_holds(passed, form, number, generator, kinks) for number in arrangements)

    if known or not weights:
        found = holds(arrangements)
    else:
        with _randomised(weights, generator):
            found = holds(arrangements)
        found = found and holds(_BRIEF)
    if found:
        _KNOWN.add(form.memory_key)
    return found


@contextmanager
def _randomised(weights: Sequence[Tensor], generator: torch.Generator) -> Iterator[None]:
    """Give weights dense random values inside the block, of about the size that keeps numbers as large as they are."""
    saved = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for weight in weights:
            made = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_(made / max(1.0, weight[:1].numel()) ** 0.5)
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, own in zip(weights, saved, strict=True):
                weight.copy_(own)


def is_apart(passed: Pass, form: PassShape) -> bool:
    """Whether a pass computes the same for a row in its place, whatever other rows hold.

    Every row of a pass is made up; then the rows of one half of the places, and of the other, become wild ones that do
    not count. The sums of both halves have to add up to that of all.
    """
    apart = "apart", form.memory_key
    if form.key is not None and apart in _KNOWN:
        return True
    generator = torch.Generator().manual_seed(form.rows)
    own_B = torch.arange(form.rows, device=form.device)
    rows, seen = make_rows(form.rows, form, generator), _Seen()
    half_B = (torch.rand(form.rows, generator=generator) < 0.5).to(form.device)
    whole, one, other = (
        _pass_rows(passed, rows, torch.where(counts_B, own_B, -1), seen)
        for counts_B in (torch.ones_like(half_B), half_B, ~half_B)
    )
    found = seen.alike and all(torch.equal(whole[name], one[name] + other[name]) for name in whole)
    if found:
        _KNOWN.add(apart)
    return found


def forget() -> None:
    """Forget every answer: something changed how kernels round."""
    _KNOWN.clear()


@contextmanager
def watch_layers(modules: Sequence[nn.Module], watch: Watch) -> Iterator[None]:
    """Show to ``watch`` the outputs of the layers inside the block, and later their cotangents."""

    def see(_: nn.Module, __: object, output: Tensor) -> None:
        show(output, watch)

    with ExitStack() as hooks:
        for module in modules:
            hooks.callback(module.register_forward_hook(see).remove)
        yield


def show(output: Tensor, watch: Watch) -> None:
    """Show an output to ``watch``, and the cotangent that reaches it."""
    watch(output.detach())
    if output.requires_grad:
        output.register_hook(lambda cotangent: watch(cotangent.detach()))


def _holds(passed: Pass, form: PassShape, number: int, generator: torch.Generator, kinks: Kinks | None) -> bool:
    """Whether one arrangement of made-up rows, and another with half as many of each, give each row's own result.

    Every fourth arrangement has one row, in all places; every fourth has rows at kinks, which take longer to make.
    """
    different = 1 if number % 4 == 0 else min(_TOGETHER, max(1, form.rows // 4))
    rows, seen = make_rows(different, form, generator, kinks if number % 4 == 1 else None), _Seen()
    many, fewer = form.rows // different, max(1, form.rows // (2 * different))
    one, other = (
        _pass_rows(passed, rows, _arrange(form.rows, different, copies, generator).to(form.device), seen)
        for copies in (many, fewer)
    )
    return seen.alike and all(torch.equal(one[name] * fewer, other[name] * many) for name in one)


def _pass_rows(passed: Pass, rows: Tensor, chosen_B: Tensor, seen: "_Seen") -> Mapping[str, Tensor]:
    """Pass the chosen rows, and wild ones in the places of the others; return the sums."""
    counts_B, column = chosen_B >= 0, (-1, *[1] * (rows.dim() - 1))
    wild_B = torch.tensor(_WILD, device=rows.device).repeat(-(-len(chosen_B) // len(_WILD)))[: len(chosen_B)]
    x = torch.where(counts_B.view(column), rows[chosen_B.clamp(min=0)], wild_B.view(column))
    seen.begin(chosen_B)
    return passed(x, chosen_B, counts_B, seen.see)


class _Seen:
    """Compares the results of copies of a row with those of the first, over several passes.

    Attributes:
        alike: whether no bit differed.
    """

    def __init__(self) -> None:
        self.alike = True
        self._references: list[Tensor] = []
        self._next = 0

    def begin(self, chosen_B: Tensor) -> None:
        """Look at another pass, which computes the same tensors in the same order."""
        self._next = 0
        self._rows = len(chosen_B)
        self._counted_B = chosen_B >= 0
        self._chosen_B = chosen_B[self._counted_B]

    def see(self, value: Tensor) -> None:
        """Compare the results of the rows of the pass."""
        place, self._next = self._next, self._next + 1
        if value.shape[0] % self._rows:
            self.alike = False  # it has no rows to compare
            return
        bits = value.contiguous().view(_BITS[value.element_size()]).unflatten(0, (-1, self._rows))
        bits = bits if len(self._chosen_B) == self._rows else bits[:, self._counted_B]
        if place == len(self._references):
            count = int(self._chosen_B.max()) + 1 if len(self._chosen_B) else 0
            reference = bits.new_zeros((len(bits), count, *bits.shape[2:]))
            reference[:, self._chosen_B] = bits
            self._references.append(reference)
        self.alike = self.alike and torch.equal(bits, self._references[place][:, self._chosen_B])


def _arrange(size: int, different: int, copies: int, generator: torch.Generator) -> Tensor:
    """Return which row stands in each place (B,): so many copies of each in random places, -1 in those left over."""
    chosen_B = torch.full((size,), -1)
    places = torch.randperm(size, generator=generator)[: different * copies]
    chosen_B[places] = torch.arange(different).repeat(copies)
    return chosen_B


def make_rows(count: int, form: PassShape, generator: torch.Generator, kinks: Kinks | None = None) -> Tensor:
    """Return made-up rows (count, *shape) on the device: dense, sparse, flat, tiny, denormal, large, at kinks."""
    x = torch.randn((count, *form.shape), generator=generator)
    scale = 10.0 ** (2.0 * torch.rand(count, generator=generator) - 1.0).view(-1, *[1] * len(form.shape))
    kind = torch.randint(8, (count,), generator=generator)
    x = x * scale
    x[kind == 1] *= (torch.rand(x[kind == 1].shape, generator=generator) < 0.1).float()
    x[kind == 2] = x[kind == 2].flatten(1).mean(dim=1).view(-1, *[1] * len(form.shape)).expand_as(x[kind == 2])
    x[kind == 3] *= 1e-18
    x[kind == 4] *= 1e9
    x[kind == 5] = torch.where(x[kind == 5] > 0, 7e-39, 0.0)  # denormal numbers, which some threads may flush
    x = x.to(form.device)
    at_kinks = (kind >= 6).nonzero().flatten().to(form.device)
    if kinks is not None and len(at_kinks):
        x[at_kinks] = _at_kinks(kinks, x[at_kinks], generator)
    return x


@torch.no_grad()
def _at_kinks(first: Callable[[Tensor], Tensor], x: Tensor, generator: torch.Generator) -> Tensor:
    """Move each row towards its negative until one output of the layer, or a difference of two, is next to zero."""
    low, high = x, -0.7 * x.roll(1, dims=0) - 0.3 * x
    y = first(x).flatten(1)
    one_K, other_K = (torch.randint(y.shape[1], (len(x),), generator=generator).to(x.device) for _ in range(2))
    alone_K = (torch.rand(len(x), generator=generator) < 0.5).to(x.device)

    def sign(rows: Tensor) -> Tensor:
        outputs = first(rows).flatten(1)
        at = outputs.gather(1, one_K[:, None]) - outputs.gather(1, other_K[:, None]).masked_fill(alone_K[:, None], 0.0)
        return (at > 0).view(-1, *[1] * (x.dim() - 1))

    below = sign(low)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        same = sign(middle) == below
        low, high = torch.where(same, middle, low), torch.where(same, high, middle)
    return low
