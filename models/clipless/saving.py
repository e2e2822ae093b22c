"""Models on disk: one safetensors file whose header holds the architecture as JSON; never a pickle."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import Any

import torch
from safetensors import safe_open
from safetensors.numpy import save as to_bytes
from safetensors.torch import save_file
from torch import Tensor, nn

from clipless.errors import ModelFileError, UnsupportedError
from clipless.layers import every_layer
from clipless.network import Network
from clipless.projections import CONSTRAINTS, Constraint

FORMAT = "clipless-network-1"
_AT_ONCE_BYTES = 2**19  # up to which a copy in memory is written in less time than one tensor after the other
_LAYERS = every_layer()


def architecture(model: Network) -> dict[str, Any]:
    """Return the layers of ``model`` and their arguments as JSON values.

    Raises:
        UnsupportedError: a layer that is not one of `clipless.layers`, by exact type.
    """
    described = [_describe(layer) for layer in model.layers]
    return {"format": FORMAT, "input_shape": list(model.input_shape), "layers": described}


def save(model: Network, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write ``model`` to ``path``, whole or not at all.

    ``metadata`` are further text entries of the header.
    """
    header = {"architecture": json.dumps(architecture(model)), **(metadata or {})}
    write_tensors(path, model.state_dict(), header)


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> None:
    """Write a safetensors file, whole or not at all; of two who write it at once, the last one's is whole."""
    partial = Path(f"{os.fspath(path)}.{os.getpid()}-{token_hex(4)}.partial")
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        if sum(map(_at_once_bytes, on_cpu.values())) <= _AT_ONCE_BYTES:
            arrays = {name: tensor.numpy() for name, tensor in on_cpu.items()}
            partial.write_bytes(to_bytes(arrays, metadata=dict(header)))
        else:
            save_file(on_cpu, partial, metadata=dict(header))
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _at_once_bytes(tensor: Tensor) -> float:
    return math.inf if tensor.dtype is torch.bfloat16 else tensor.nbytes  # of which NumPy knows nothing


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the header and the tensors of a safetensors file; a damaged one raises errors of the library."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def load(path: str | os.PathLike[str]) -> Network:
    """Read a model that `save` wrote.

    Raises:
        ModelFileError: not such a file, a damaged one, or weights that do not fit the architecture.
    """
    try:
        header, tensors = read_tensors(path)
        described = json.loads(header["architecture"])
        if described["format"] != FORMAT:
            raise ModelFileError(f"Expected format {FORMAT} in {path}, got {described['format']!r}")
        model = Network([_build(layer) for layer in described["layers"]], described["input_shape"])
        model.load_state_dict(tensors)
    except ModelFileError:
        raise
    except FileNotFoundError:
        raise ModelFileError(
            f"Expected a model at {path}, found no file; if a point of a sweep named it, the point has left the front "
            "since and its model was removed: read the front again"
        ) from None
    except Exception as error:  # whatever a damaged or hostile header leads to
        raise ModelFileError(f"Expected a model written by clipless.save at {path}, got: {error}") from error
    return model


def _build(described: Mapping[str, Any]) -> nn.Module:
    arguments = dict(described)
    name = arguments.pop("type")
    if name not in _LAYERS:
        raise ModelFileError(f"Expected a layer among {', '.join(_LAYERS)}, got {name!r}")
    return _LAYERS[name](**{k: _from_json(v) for k, v in arguments.items()})


def _describe(layer: nn.Module) -> dict[str, Any]:
    name = type(layer).__name__
    if _LAYERS.get(name) is not type(layer):
        raise UnsupportedError(f"Expected layers of clipless.layers in a saved model, got {name}")
    return {"type": name, **{k: _to_json(v) for k, v in layer.config().items()}}  # type: ignore[operator]


def _to_json(value: Any) -> Any:
    if isinstance(value, nn.Module):  # a block's own layers
        return _describe(value)
    for name, kind in CONSTRAINTS.items():
        if type(value) is kind:
            return {"constraint": name, **asdict(value)}
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and "type" in value:
        return _build(value)
    if isinstance(value, dict):
        arguments = dict(value)
        constraint: Constraint = CONSTRAINTS[arguments.pop("constraint")](**arguments)
        return constraint
    return tuple(_from_json(item) for item in value) if isinstance(value, list) else value
