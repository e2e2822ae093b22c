"""Constraint sets as frozen values; after each step a layer's weight is projected onto its set."""

from collections.abc import Callable, Mapping
from math import inf, sqrt
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor


class Constraint(Protocol):
    """A set of matrices: a frozen dataclass whose attributes are JSON values, with defaults."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def radius(self) -> float:
        """Upper bound of the spectral norm after a projection."""

    def project(self, weight_OI: "Tensor") -> "Tensor":
        """Return the projection of a matrix."""


C = TypeVar("C", bound=Constraint)
_KINDS: dict[str, type[Constraint]] = {}
CONSTRAINTS: Mapping[str, type[Constraint]] = MappingProxyType(_KINDS)


def constraint(name: str) -> Callable[[type[C]], type[C]]:
    """Enter the decorated class in `CONSTRAINTS`; a second entry of that name is an error."""

    def register(kind: type[C]) -> type[C]:
        if name in _KINDS:
            raise ValueError(f"There is already a constraint {name}: {_KINDS[name].__name__}")
        _KINDS[name] = kind
        return kind

    return register


def build_constraint(name: str, radius: float | None = None) -> Constraint:
    """Return a constraint by its name in `CONSTRAINTS`, with a radius if it takes one."""
    kind = CONSTRAINTS[name]
    return kind() if radius is None else kind(radius=radius)  # type: ignore[call-arg]


def initial_gain(constraint: Constraint) -> float:
    """Return the singular values that orthogonal weights start with; sqrt(2) without a bound (He et al. 2015)."""
    return constraint.radius if constraint.radius < inf else sqrt(2.0)


def check_radius(constraint: Constraint) -> None:
    """Raise ValueError, naming the constraint, unless its radius is positive and finite."""
    if not 0 < constraint.radius < inf:
        raise ValueError(f"Expected 0 < radius < inf, got radius={constraint.radius!r} ({type(constraint).__name__})")


def check_iterations(constraint: Constraint, iterations: int) -> None:
    """Raise ValueError, naming the constraint, for less than one iteration."""
    if not iterations >= 1:
        raise ValueError(f"Expected iterations >= 1, got iterations={iterations!r} ({type(constraint).__name__})")
