"""What layers without guarded parameters share."""

from inspect import signature
from typing import Any

from torch import nn


class Layer(nn.Module):
    """A layer that keeps each of its constructor's arguments as an attribute of that name."""

    def __init__(self) -> None:  # that of nn.Module takes any argument, and `config` reads the signature
        super().__init__()

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}
