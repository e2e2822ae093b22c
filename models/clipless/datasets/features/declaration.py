"""The declaration of a frozen public encoder: where it comes from, and what is done to a row on the way through it.

Everything here is a public input of the guarantee and may be printed and saved. Nothing here imports torch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from clipless.errors import DeclarationError

LARGEST_RADIUS = 1e6
LARGEST_SIDE = 4096
_HASH_LENGTH = 64
_ONNX, _SAFETENSORS, _TORCHSCRIPT = ".onnx", ".safetensors", (".pt", ".ts", ".torchscript")
_NAMES = ("efficientnet-lite0", "wordllama")
SUFFIXES = (_ONNX, _SAFETENSORS, *_TORCHSCRIPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """A frozen public encoder, and how rows are given to it.

    Attributes:
        name: of the encoder.
        module: ``package.module:function``, which returns it as a module of PyTorch in evaluation mode; or None.
        file: of TorchScript or ONNX, or of safetensors weights for ``module``; or None.
        licence: of its weights.
        pretrained_on: the public data that it has learned from.
        clip: radius of the ball onto which features are projected, in their own units.
        sha256: digest of its file, or of its state: the one that is expected, or, of an encoder that was opened, found.
        resize: pictures: side to which they are scaled, bicubic; None leaves them.
        mean: pictures: subtracted from each channel of levels in [0, 1], one number or one for each; () for nothing.
        std: pictures: what the difference is divided by.
        cache: whether features are kept on this machine for the next sweep.
        fingerprint: numbers that follow from its features of fixed rows, as they were found; () compares nothing, and
            is that of a file of TorchScript or ONNX, whose digest covers all that it computes.
    """

    name: str
    module: str | None = None
    file: str | None = None
    licence: str
    pretrained_on: str
    clip: float
    sha256: str | None = None
    resize: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    cache: bool = True
    fingerprint: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        mistake = find_mistake({field: getattr(self, field) for field in self.__slots__})
        if mistake is not None:
            raise DeclarationError(mistake.in_words())

    @property
    def is_onnx(self) -> bool:
        """Whether it is a file of ONNX."""
        return self.file is not None and self.file.lower().endswith(_ONNX)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; `from_json` reads them back."""
        return {field: _plain(getattr(self, field)) for field in self.__slots__}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Features":
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError, DataError: not such a content.
        """
        pairs = {field: tuple(map(float, content[field])) for field in ("mean", "std")}
        fingerprint = tuple(map(float, content.get("fingerprint", ())))  # older contents have none
        return cls(**{**content, **pairs, "fingerprint": fingerprint})


class Mistake(NamedTuple):
    """A field of a declaration that has no such value."""

    field: str
    got: Any
    expected: str
    remedy: str = ""

    def in_words(self) -> str:
        """Return it as one sentence."""
        got = "none" if self.got is None else repr(self.got)
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"Expected {self.expected}, got {got}{remedy} (data.features.{self.field})"


def find_mistake(given: Mapping[str, Any]) -> Mistake | None:
    """Return the first mistake of a declaration, as values by field; None if there is none."""
    return next(_mistakes(given), None)


def _mistakes(given: Mapping[str, Any]) -> Iterator[Mistake]:
    module, file, name = given.get("module"), given.get("file"), given.get("name")
    known = f"add it, or name {' or '.join(_NAMES)}"
    if module is None and file is None:
        yield Mistake("module", None, f"the module or the file of the encoder {name!r}", known)
    for field in ("name", "licence", "pretrained_on"):
        if not (given.get(field) or "").strip():
            yield Mistake(field, given.get(field), f"{field} of the encoder {name!r}, which the card states", known)
    clip, resize, sha256 = given.get("clip"), given.get("resize"), given.get("sha256")
    if clip is None or not 0 < clip <= LARGEST_RADIUS:
        yield Mistake("clip", clip, f"the radius onto which longer features are scaled, above 0 to {LARGEST_RADIUS:g}")
    if not (resize is None or 1 <= resize <= LARGEST_SIDE):
        yield Mistake("resize", resize, f"a side of 1 to {LARGEST_SIDE} pixels")
    if not all(map(isfinite, given.get("mean", ()))):
        yield Mistake("mean", given["mean"], "finite numbers")
    if not all(0 < number < inf for number in given.get("std", ())):
        yield Mistake("std", given["std"], "finite numbers > 0")
    if not (sha256 is None or (len(sha256) == _HASH_LENGTH and set(sha256) <= set("0123456789abcdef"))):
        yield Mistake("sha256", sha256, f"{_HASH_LENGTH} digits from 0 to f")
    if module is not None and not _is_function(module):
        yield Mistake("module", module, "package.module:function")
    if file is not None:
        yield from _mistakes_of_file(file, module)


def _mistakes_of_file(file: str, module: str | None) -> Iterator[Mistake]:
    if not file.lower().endswith(SUFFIXES):
        yield Mistake("file", file, f"a file of {', '.join(SUFFIXES)}")
    elif file.lower().endswith(_SAFETENSORS):
        if module is None:
            yield Mistake("module", None, f"the module that the weights in {file} are loaded into", "add it")
    elif module is not None:
        yield Mistake("module", module, f"no module beside {file}, which holds its own", "leave it out")


def _is_function(text: str) -> bool:
    home, _, function = text.partition(":")
    return all(part.isidentifier() for part in (*home.split("."), function))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


KNOWN: Mapping[str, Features] = MappingProxyType(
    {
        "efficientnet-lite0": Features(
            name="efficientnet-lite0",
            module="clipless.datasets.features.known:efficientnet_lite0",
            licence="Apache-2.0",
            pretrained_on="ImageNet (ILSVRC 2012)",
            clip=16.0,
            resize=160,
            mean=(127 / 255,),
            std=(128 / 255,),
        ),
        "wordllama": Features(
            name="wordllama",
            module="clipless.datasets.features.known:wordllama",
            licence="MIT",
            pretrained_on="token embeddings of Llama 2, trained further on public pairs of sentences",
            clip=2.0,
        ),
    }
)


def known_encoders() -> tuple[str, ...]:
    """Return the names of the encoders that need no declaration."""
    return _NAMES


def fill_in(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given of an encoder by field, and of a known one the rest; None counts as not given."""
    given = {field: value for field, value in given.items() if value is not None}
    known = KNOWN.get(given.get("name", ""))
    if known is None or "module" in given or "file" in given:
        return given
    return {field: getattr(known, field) for field in known.__slots__} | given


def find_features(name: str, **given: Any) -> Features:
    """Return the declaration of an encoder: what is given, and of a known one the rest.

    Raises:
        DeclarationError: an unknown encoder whose declaration lacks something, or a value out of range.
    """
    content = fill_in({"name": name, **given})
    mistake = find_mistake(content)
    if mistake is not None:
        raise DeclarationError(mistake.in_words())
    return Features(**content)


def find_file(features: Features, folder: Path) -> Features:
    """Return the declaration with its file in a folder, where one of that name lies there, or as it is."""
    if features.file is None:
        return features
    path = Path(features.file)
    found = next((place for place in (folder / path, folder / path.name) if place.is_file()), path)
    return replace(features, file=str(found))
