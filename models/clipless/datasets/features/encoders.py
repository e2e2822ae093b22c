"""Opening an encoder: a module of PyTorch, a file of TorchScript or of ONNX; its digest, and one row through it.

A row goes through alone, as a batch of one in memory of its own: no other row, no place in a batch and no address
decides how its features round. Features that are not finite become zeros, and longer ones are scaled onto the ball of
the declared radius, so that no row exceeds the norm that sensitivities rest on::

    f(x) = c(e(x)),    c(v) = v min(1, r / |v|) for finite v, else 0

The projection onto a ball is non-expansive, so that a radius certified for its output holds for its input.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib import metadata as importlib_metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.datasets.features.declaration import Features
from clipless.datasets.metadata import Metadata
from clipless.datasets.raw_rows import PIXEL_UNIT
from clipless.datasets.tables.declarations import TEXT_UNIT
from clipless.datasets.tables.texts import decode_text
from clipless.errors import DataError

Forward = Callable[[Any], Tensor]
_ONNX_WEIGHTS = "session.model_external_initializers_file_folder_path"  # where weights beside a file are looked for


@dataclass(frozen=True, slots=True)
class RowKind:
    """What rows are like that go through an encoder.

    Attributes:
        name: of the data set.
        shape: of a row.
        unit: of its numbers: levels of pixels, bytes of text, or others.
    """

    name: str
    shape: tuple[int, ...]
    unit: str

    @classmethod
    def of(cls, facts: Metadata) -> "RowKind":
        """Return the kind of a data set's rows."""
        return cls(facts.name, facts.input_shape, facts.radius_unit)

    @property
    def is_text(self) -> bool:
        """Whether rows are texts."""
        return self.unit == TEXT_UNIT

    @property
    def is_picture(self) -> bool:
        """Whether rows are pictures, channels first, with levels in [0, 1]."""
        return self.unit == PIXEL_UNIT and len(self.shape) == 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """An encoder that is open.

    Attributes:
        features: its declaration, with the digest that was found.
        forward: a batch of prepared rows to a batch of features.
        module: of PyTorch, where it is one.
        versions: of the packages that compute it.
        texts: whether rows are texts.
    """

    features: Features
    forward: Forward
    module: nn.Module | None
    versions: tuple[str, ...]
    texts: bool

    def digest(self) -> str:
        """Return the digest of its file, or of the state that it has now."""
        return _digest(self.features, self.module)

    def prepare(self, row: Tensor) -> Any:
        """Return a batch of one row, as the encoder takes it: a text, or a tensor in memory of its own."""
        if self.texts:
            return [decode_text(row)]
        x = row[None].clone()
        if self.features.resize is not None:
            size = (self.features.resize, self.features.resize)
            x = F.interpolate(x, size=size, mode="bicubic", align_corners=False, antialias=True)
        if self.features.mean:
            x = x - _channels(self.features.mean)
        return x / _channels(self.features.std) if self.features.std else x

    def __call__(self, row: Tensor) -> Tensor:
        """Return the features (F,) of one row, float32.

        Raises:
            DataError: not one row of features.

        Guarantees:
            They depend on the row alone, and their norm is at most ``features.clip``, up to float32 rounding.
        """
        return clip_features(self.compute(row), self.features.clip)

    @torch.inference_mode()
    def compute(self, row: Tensor) -> Tensor:
        """Return the features (F,) of one row as they come, of any norm and perhaps not finite.

        Raises:
            DataError: not one row of features.
        """
        found = self.forward(self.prepare(row))
        if not (isinstance(found, Tensor) and found.dim() >= 2 and len(found) == 1 and found.is_floating_point()):
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise DataError(
                f"Expected the encoder {self.features.name!r} to return (1, features) of a batch of one row, got "
                f"{shape}: name a module that does (data.features.module)"
            )
        return found.flatten()


def clip_features(feature_F: Tensor, radius: float) -> Tensor:
    """Return features scaled onto the ball of a radius if they are longer; zeros if they are not finite."""
    exact_F = feature_F.double()
    norm = torch.linalg.vector_norm(exact_F)
    if not bool(torch.isfinite(norm)):
        return torch.zeros_like(feature_F, dtype=torch.float32)
    return (exact_F * (radius / torch.clamp(norm, min=radius))).float()


def open_encoder(features: Features, kind: RowKind) -> Encoder:
    """Open an encoder for rows of a data set.

    Raises:
        DataError: it is not installed, cannot be read, has another digest than the declared one, keeps weights in
            another file, or takes no such rows.
    """
    _check_rows(features, kind)
    if features.module is not None:
        module: nn.Module | None = _import_module(features)
        forward: Forward = module  # type: ignore[assignment]
    elif features.is_onnx:
        module, forward = None, _open_onnx(features)
    else:
        module = _open_torchscript(features)
        forward = module
    digest = _digest(features, module)
    if features.sha256 not in (None, digest):
        raise DataError(
            f"Expected the encoder {features.name!r} with SHA-256 {features.sha256}, got {digest}: bring the one that "
            "was declared, or declare this one (data.features.sha256)"
        )
    found = replace(features, sha256=digest)
    return Encoder(features=found, forward=forward, module=module, versions=_versions(features), texts=kind.is_text)


def _check_rows(features: Features, kind: RowKind) -> None:
    if (features.resize is not None or features.mean or features.std) and not kind.is_picture:
        raise DataError(
            f"Expected pictures with levels in [0, 1] for resize, mean and std of the encoder {features.name!r}, got "
            f"examples of shape {kind.shape}, {kind.unit}, of {kind.name}: leave them out (data.features)"
        )
    for field in ("mean", "std"):
        count = len(getattr(features, field))
        if count not in (0, 1, kind.shape[0]):
            raise DataError(
                f"Expected one number or {kind.shape[0]}, one for each channel of {kind.name}, got {count} "
                f"(data.features.{field})"
            )
    if kind.is_text and features.module is None:
        raise DataError(
            f"Expected a module for the texts of {kind.name}, whose batch is a list of str, got {features.file} "
            "(data.features.module)"
        )


def _import_module(features: Features) -> nn.Module:
    home, _, function = str(features.module).partition(":")
    try:
        made = getattr(import_module(home), function)()
    except (ImportError, AttributeError) as error:
        raise DataError(f"Cannot import {features.module}: {error} (data.features.module)") from None
    if not isinstance(made, nn.Module):
        raise DataError(
            f"Expected {features.module} to return a torch.nn.Module, got {type(made).__name__} (data.features.module)"
        )
    if features.file is not None:
        _load_weights(made, features)
    return made.cpu().requires_grad_(False)


def _load_weights(module: nn.Module, features: Features) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        module.load_state_dict(load_file(str(features.file)), strict=True)
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"Cannot load {features.file} into {features.module}: {reason} (data.features.file)") from None


def _open_torchscript(features: Features) -> nn.Module:
    try:
        with _no_warnings():
            module: nn.Module = torch.jit.load(str(features.file), map_location="cpu")
            return module
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"Cannot read {features.file} as TorchScript: {reason} (data.features.file)") from None


def _open_onnx(features: Features) -> Forward:
    try:
        import onnxruntime
    except ImportError:
        raise DataError(
            f"Expected onnxruntime for {features.file}, found none: pip install 'sweeper[encoders]' "
            "(data.features.file)"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        with TemporaryDirectory() as empty:  # in which no weights lie that the digest of the file would not cover
            options.add_session_config_entry(_ONNX_WEIGHTS, empty)
            content = Path(str(features.file)).read_bytes()
            session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of its own hierarchy, which has no public root
        reason = " ".join(str(error).split())[:200]
        apart = "; save it with its weights inside" if "xternal data" in reason else ""
        raise DataError(f"Cannot read {features.file} as ONNX: {reason}{apart} (data.features.file)") from None
    inputs = session.get_inputs()
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs)
        raise DataError(f"Expected one input in {features.file}, got {len(inputs)}: {names} (data.features.file)")

    def forward(x: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {inputs[0].name: x.numpy()})[0])

    return forward


def _digest(features: Features, module: nn.Module | None) -> str:
    digest = hashlib.sha256()
    if features.file is not None:
        with Path(features.file).open("rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    elif module is not None:
        for part in _state(module):
            digest.update(part)
    return digest.hexdigest()


def _state(module: nn.Module) -> Iterator[bytes]:
    """Yield everything that a module keeps: names, types, shapes and contents, in the order of the names."""
    for name, value in sorted(module.state_dict().items()):
        if isinstance(value, Tensor):
            yield f"{name} {value.dtype} {tuple(value.shape)}\n".encode()
            yield value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        else:
            yield f"{name} {type(value).__name__}\n".encode()
            yield value if isinstance(value, bytes) else repr(value).encode()


def _versions(features: Features) -> tuple[str, ...]:
    """Return the versions of what computes features: of torch or ONNX Runtime, and of the module's package."""
    names = ["onnxruntime" if features.is_onnx else "torch"]
    names += [] if features.module is None else [features.module.partition(":")[0].partition(".")[0]]
    return tuple(f"{name} {_version(name)}" for name in names)


def _version(name: str) -> str:
    try:
        return importlib_metadata.version(name)
    except importlib_metadata.PackageNotFoundError:  # a module that is no package of that name
        return "unknown"


def _channels(numbers: tuple[float, ...]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32).view(-1, 1, 1)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Keep quiet the advice of PyTorch to export TorchScript anew, which its user knows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
