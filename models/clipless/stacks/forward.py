"""Networks of one shape as one map of rows, and the guards of one pass through it.

The rows of all members lie one behind the other, the same number for each. A layer without state maps all of them at
once, for it maps every row alone; a dense layer multiplies each member's rows with the member's own weight; any other
layer, and any two that differ, are applied by each member to its own rows, under its own guard.

Shape letters: M members, R rows of all members, B rows of one.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from clipless.errors import PlanError
from clipless.guards.guard import Guard, GuardedLayer
from clipless.guards.potential import guarded_potential
from clipless.guards.stacked import StackedGuard, stacked_bias, stacked_linear
from clipless.layers import ClipGradient, ConvexPotential, Dense, Residual, every_layer
from clipless.network import Network
from clipless.row_independence import Watch, show
from clipless.scalars import Scalar, on_host


@dataclass(frozen=True, slots=True, eq=False)
class GuardedPass:
    """The guards of one pass: the sensitivities of every member by parameter, and the totals of the sums.

    Attributes:
        sensitivities: of each member, for every trained parameter.
        rows: R.
        totals: (M, *shape) float64 by parameter.
        normalise: see `clipless.guards.guard.Guard`.
        exact: see `clipless.guards.guard.Guard`.
    """

    sensitivities: Sequence[Mapping[str, Scalar]]
    rows: int
    totals: Mapping[str, Tensor]
    normalise: bool
    exact: bool

    def together(self, path: str) -> StackedGuard:
        """Return the guard of one parameter of all members."""
        deltas = tuple(of_member[path] for of_member in self.sensitivities)
        return StackedGuard(deltas, self.rows, self.totals[path], self.normalise)

    def of_member(self, member: int, path: str) -> Guard:
        """Return the guard of one parameter of one member."""
        delta = self.sensitivities[member].get(path)
        if delta is None or (on_host(delta) and not 0 < delta < float("inf")):
            raise PlanError(f"Expected a positive, finite sensitivity for {path}, got {delta!r}")
        return Guard(delta, self.normalise, self.exact, self.totals[path][member])


class StackedLayer(ABC):
    """One layer of every member, as a map of the rows of all of them.

    Attributes:
        guarded_paths: names of the parameters whose gradients its guards gather.
    """

    guarded_paths: frozenset[str] = frozenset()

    @property
    def is_stacked(self) -> bool:
        """Whether it maps the rows of all members with nothing but the stacked weights, whatever their type."""
        return True

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """Map rows (R, ...)."""

    def arm(self, guards: GuardedPass | None) -> None:
        """Let the next pass be guarded; None: by nothing."""
        del guards

    def gathered_nothing(self) -> bool:
        """Whether no weight holds a gradient: all went through guards."""
        return True


@final
class SharedLayer(StackedLayer):
    """A layer without parameters and state, the same for every member."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer

    @property
    def is_stacked(self) -> bool:
        """Not where it has constants, of a type of their own."""
        return next(self._layer.buffers(), None) is None

    def __call__(self, x: Tensor) -> Tensor:
        """Map all rows at once."""
        y: Tensor = self._layer(x)
        return y


@final
class SeparateLayers(StackedLayer):
    """Layers of any type that each member applies to its own rows."""

    def __init__(self, path: str, layers: Sequence[nn.Module]) -> None:
        self._layers = layers
        self._owners = [
            [(owner, f"{path}.{name}" if name else path) for name, owner in layer.named_modules()] for layer in layers
        ]
        trained = (f"{path}.{name}" for name, p in layers[0].named_parameters() if p.requires_grad)
        self.guarded_paths = frozenset(trained)

    @property
    def is_stacked(self) -> bool:
        """Each member applies a layer of its own."""
        return False

    def __call__(self, x: Tensor) -> Tensor:
        """Map each member's rows with its own layer."""
        parts = x.chunk(len(self._layers))
        return torch.cat([layer(part) for layer, part in zip(self._layers, parts, strict=True)])

    def arm(self, guards: GuardedPass | None) -> None:
        """Arm the guards of every member's layers."""
        for member, owners in enumerate(self._owners):
            for owner, path in owners:
                if isinstance(owner, GuardedLayer):
                    owner.guards = None if guards is None else _guards_of(owner, path, member, guards)


class StackedWeights(StackedLayer):
    """Layers of one matrix each, (M, O, I), with biases (M, O) or none."""

    def __init__(self, path: str, weights: Mapping[str, Tensor]) -> None:
        self._guards: dict[str, StackedGuard] | None = None
        own = {name: weights.get(f"{path}.{name}") for name in ("weight", "bias")}
        # views that require a gradient: the backward pass then reaches the guard, which leaves them without one
        self._weights = {name: value.detach().requires_grad_() for name, value in own.items() if value is not None}
        self._path = path
        self.guarded_paths = frozenset(f"{path}.{name}" for name in self._weights)

    def arm(self, guards: GuardedPass | None) -> None:
        """Arm the guards of weight and bias."""
        self._guards = None
        if guards is not None:
            self._guards = {name: guards.together(f"{self._path}.{name}") for name in self._weights}

    def gathered_nothing(self) -> bool:
        """Whether neither weight nor bias holds a gradient."""
        return all(weight.grad is None for weight in self._weights.values())


@final
class StackedDense(StackedWeights):
    """A dense layer of every member."""

    def __call__(self, x: Tensor) -> Tensor:
        """Map each member's rows (B, I) or (B, T, I) with its own weight and bias."""
        guards = self._guards or {}
        y = stacked_linear(x, self._weights["weight"], guards.get("weight"))
        return y if "bias" not in self._weights else stacked_bias(y, self._weights["bias"], -1, guards.get("bias"))


@final
class StackedPotential(StackedWeights):
    """A convex potential layer of every member; ``layer`` is that of one, with the same radius of biases as all."""

    def __init__(self, path: str, weights: Mapping[str, Tensor], layer: ConvexPotential) -> None:
        super().__init__(path, weights)
        self._layer = layer

    def __call__(self, x: Tensor) -> Tensor:
        """Map each member's rows (B, D) or (B, T, D) with its own weight and bias."""
        offset = self._layer.normalising_offset(x[0].numel())
        return guarded_potential(x, self._weights["weight"], self._weights.get("bias"), self._guards or {}, offset)


@final
class StackedResidual(StackedLayer):
    """Residual blocks with one fixed weight, or none."""

    def __init__(self, weight: float | None, inside: Sequence[StackedLayer]) -> None:
        self._weight, self._inside = weight, inside
        self.guarded_paths = frozenset().union(*(layer.guarded_paths for layer in inside))

    @property
    def is_stacked(self) -> bool:
        """Whether all layers inside are."""
        return all(layer.is_stacked for layer in self._inside)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the blocks."""
        f = x
        for layer in self._inside:
            f = layer(f)
        return x + f if self._weight is None else self._weight * x + (1.0 - self._weight) * f

    def arm(self, guards: GuardedPass | None) -> None:
        """Arm the layers inside."""
        for layer in self._inside:
            layer.arm(guards)

    def gathered_nothing(self) -> bool:
        """Whether the layers inside hold no gradient."""
        return all(layer.gathered_nothing() for layer in self._inside)


@final
class StackedNetwork:
    """Networks of one shape, from a layer on.

    Args:
        networks: of the members, which keep their layers: their parameters are views of ``weights``.
        weights: (M, *shape) by parameter.
        first: number of leading layers that are left out.
        exact: whether guards take exact norms.

    Raises:
        PlanError: a trained parameter that no guard would reach.
    """

    def __init__(
        self, networks: Sequence[Network], weights: Mapping[str, Tensor], *, first: int = 0, exact: bool = False
    ) -> None:
        self.members = len(networks)
        places = range(first, len(networks[0].layers))
        self._layers = [
            _stack_layer(f"layers.{i}", [network.layers[i] for network in networks], weights, exact) for i in places
        ]
        reached = frozenset().union(*(layer.guarded_paths for layer in self._layers))
        if reached != weights.keys():
            missed = ", ".join(sorted(reached ^ weights.keys()))
            raise PlanError(f"Expected guards for every trained parameter, got none for {missed}")

    def __call__(self, x: Tensor, watch: Watch | None = None) -> Tensor:
        """Map rows (R, ...) to logits (R, K); ``watch`` sees what each layer computes (`clipless.row_independence`)."""
        for layer in self._layers:
            x = layer(x)
            if watch is not None:
                show(x, watch)
        return x

    @contextmanager
    def guarded(self, guards: GuardedPass) -> Iterator[None]:
        """Guard one backward pass inside the block.

        Guarantees:
            Each member's computed sum for each parameter changes by at most the member's sensitivity when any one of
            its rows is replaced by a row with zero contribution, and by nothing when rows of other members change; as
            `clipless.guards.guard.guarded`, and under the same conditions.
        """
        try:
            for layer in self._layers:
                layer.arm(guards)
            yield
        finally:
            for layer in self._layers:
                layer.arm(None)

    def gathered_nothing(self) -> bool:
        """Whether no stacked weight holds a gradient; those of the members' own are for the caller to look at."""
        return all(layer.gathered_nothing() for layer in self._layers)


def stack_layers(
    networks: Sequence[Network], weights: Mapping[str, Tensor], first: int
) -> Sequence[StackedLayer] | None:
    """Return the layers from the first on as maps of the rows of all networks; None where one has layers of its own.

    ``weights`` are (M, *shape) by parameter, in the type of the rows that are to be mapped.
    """
    places = range(first, len(networks[0].layers))
    layers = [_stack_layer(f"layers.{i}", [one.layers[i] for one in networks], weights, exact=False) for i in places]
    return layers if all(layer.is_stacked for layer in layers) else None


def by_parameter(entries_MD: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return views (M, *shape) of the entries of all members, by parameter."""
    pieces = entries_MD.split([parameter.numel() for parameter in parameters.values()], dim=1)
    named = zip(parameters.items(), pieces, strict=True)
    return {name: piece.unflatten(1, parameter.shape) for (name, parameter), piece in named}


def _stack_layer(path: str, layers: Sequence[nn.Module], weights: Mapping[str, Tensor], exact: bool) -> StackedLayer:
    """Return the quickest form of a layer that is certain to be right."""
    layer = layers[0]
    trained = all(parameter.requires_grad for one in layers for parameter in one.parameters())
    if trained and not exact and all(type(one) is Dense for one in layers):
        return StackedDense(path, weights)
    potentials = [one for one in layers if type(one) is ConvexPotential]
    if trained and not exact and len(potentials) == len(layers) and len({one.bias_norm for one in potentials}) == 1:
        return StackedPotential(path, weights, potentials[0])
    if isinstance(layer, Residual) and layer.mix is None and all(one.weight == layer.weight for one in layers):
        columns = zip(*(list(one.layers) for one in layers if isinstance(one, Residual)), strict=True)
        inside = [_stack_layer(f"{path}.layers.{i}", column, weights, exact) for i, column in enumerate(columns)]
        return StackedResidual(layer.weight, inside)
    return SharedLayer(layer) if all(_alike(layer, one) for one in layers) else SeparateLayers(path, layers)


def _alike(a: nn.Module, b: nn.Module) -> bool:
    """Whether two layers of the library are the same map: neither has any state of its own."""
    known = every_layer().get(type(a).__name__) is type(a)
    if not known or type(a) is not type(b) or isinstance(a, ClipGradient) or a.state_dict() or b.state_dict():
        return False
    return bool(a.config() == b.config())  # type: ignore[operator]


def _guards_of(owner: GuardedLayer, path: str, member: int, guards: GuardedPass) -> dict[str, Guard]:
    own = owner.named_parameters(recurse=False)
    return {name: guards.of_member(member, f"{path}.{name}") for name, p in own if p.requires_grad}
