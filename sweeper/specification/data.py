"""The section ``data`` of a spec: what is learned from, and what is declared of it."""

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import model_validator

from clipless.datasets import ColourSpace, ColumnSplit, Evaluation, HashSplit, find_features
from clipless.datasets.catalog import check_name, is_table
from clipless.datasets.features.declaration import fill_in, find_mistake
from clipless.errors import DeclarationError
from sweeper.specification.fields._section import ONE_COUNT, Section
from sweeper.specification.fields.fields import FieldType, FileName, Name, Number
from sweeper.specification.fields.messages import bad_value

if TYPE_CHECKING:
    from pathlib import Path

    from clipless.datasets import Features, Preparation

_SHARE = Number(above=0, below=1, fixed=True)
# Constants beyond which float32 norms could overflow or vanish, for some rows and not for others.
SMALLEST, LARGEST = 1e-6, 1e6


def mistakes_in_name(name: object) -> tuple[str, ...]:
    """Return what is wrong with the name of a data set; nothing where it is none, or may be the path of a table."""
    try:
        check_name(name if isinstance(name, str) else ".csv")
    except DeclarationError as error:
        return (str(error),)
    return ()


class Classes(FieldType):
    """The labels in order; numbers count as their text."""

    def parse(self, value: Any) -> tuple[str, ...]:
        """Return the labels."""
        labels = isinstance(value, list | tuple) and all(type(label) in (str, int) for label in value)
        texts = tuple(map(str, value)) if labels else ()
        if not len(set(texts)) == len(texts) >= 2:
            raise bad_value("two or more distinct labels, texts or whole numbers")
        return texts

    def json_schema(self) -> dict[str, Any]:
        """Two or more texts or whole numbers."""
        return {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "uniqueItems": True}


class BlockNames(FieldType):
    """The blocks that are read; numbers count as their text."""

    def parse(self, value: Any) -> tuple[str, ...]:
        """Return the names."""
        names = isinstance(value, list | tuple) and all(type(name) in (str, int) and name != "" for name in value)
        texts = tuple(map(str, value)) if names else ()
        if not len(set(texts)) == len(texts) >= 1:
            raise bad_value("one or more distinct blocks, texts or whole numbers")
        return texts

    def json_schema(self) -> dict[str, Any]:
        """One or more texts or whole numbers."""
        return {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1, "uniqueItems": True}


class Centre(FieldType):
    """One number, or one for each channel."""

    def parse(self, value: Any) -> tuple[float, ...]:
        """Return the numbers."""
        numbers = value if isinstance(value, list | tuple) else [value]
        if not numbers or not all(type(number) in (int, float) and abs(number) <= LARGEST for number in numbers):
            expected = "a number to subtract, or a list with one for each channel"
            raise bad_value(f"{expected}, within {LARGEST:g} of 0")
        return tuple(map(float, numbers))

    def json_schema(self) -> dict[str, Any]:
        """A number or several."""
        number = {"type": "number"}
        return {"anyOf": [number, {"type": "array", "items": number, "minItems": 1}]}


class SplitShare(FieldType):
    """A fraction of the rows, or the values of the split column that mark them."""

    def parse(self, value: Any) -> float | tuple[str, ...]:
        """Return the fraction, or the values."""
        if isinstance(value, list | tuple):
            if not (value and all(isinstance(text, str) for text in value)):
                raise bad_value("one or more texts that mark a split")
            return tuple(value)
        return float(_SHARE.one(value))

    def json_schema(self) -> dict[str, Any]:
        """A fraction, or texts."""
        return {"anyOf": [_SHARE.json_schema(), {"type": "array", "items": {"type": "string"}, "minItems": 1}]}


class SplitSettings(Section):
    """How rows are assigned: fractions by keyed hash, or a ``column`` and the values that mark each split."""

    train: Annotated[tuple[str, ...], SplitShare()] | None = None
    validation: Annotated[float | tuple[str, ...], SplitShare()] | None = None
    test: Annotated[float | tuple[str, ...], SplitShare()] | None = None
    salt: str | None = None
    column: str | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        if self.column is not None:
            for part, values in parts.items():
                if not isinstance(values, tuple):
                    raise bad_value(
                        f"the values of column {self.column!r} that mark {part} rows", path=part, got=values
                    )
            if self.salt is not None:
                raise bad_value("no salt for a declared split", path="salt", got=self.salt, remedy="leave it out")
            marks = [mark for values in parts.values() if isinstance(values, tuple) for mark in values]
            if len(set(marks)) < len(marks):
                raise bad_value("each value in one split only", got=marks)
            return self
        for part, values in parts.items():
            if isinstance(values, tuple) or (part == "train" and values is not None):
                remedy = "name the column, or give fractions for validation and test"
                raise bad_value("splits.column for declared values", path=part, got=values, remedy=remedy)
        if not sum(share for share in (self.validation, self.test) if isinstance(share, float)) < 1:
            raise bad_value("validation + test < 1", got=[self.validation, self.test])
        return self

    def splitting(self) -> HashSplit | ColumnSplit:
        """Return what the data sets are loaded with."""
        if self.column is not None:
            marks = {"train": self.train, "validation": self.validation, "test": self.test}
            return ColumnSplit(column=self.column, **marks)  # type: ignore[arg-type]
        given = {"validation": self.validation, "test": self.test, "salt": self.salt}
        return HashSplit(**{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]


class FeatureSettings(Section):
    """A frozen public encoder by ``name``: a known one, or one whose ``module`` or ``file`` and origin are declared."""

    name: str
    module: str | None = None
    file: Annotated[str, FileName()] | None = None
    licence: str | None = None
    pretrained_on: str | None = None
    clip: Annotated[float, Number(at_least=SMALLEST, at_most=LARGEST, fixed=True)] | None = None
    sha256: str | None = None
    resize: Annotated[int, ONE_COUNT] | None = None
    mean: Annotated[tuple[float, ...], Centre()] | None = None
    std: Annotated[tuple[float, ...], Centre()] | None = None
    cache: bool | None = None

    @model_validator(mode="after")
    def _declared(self) -> Self:
        mistake = find_mistake(fill_in(self.model_dump()))
        if mistake is not None:
            raise bad_value(mistake.expected, path=mistake.field, got=mistake.got, remedy=mistake.remedy)
        return self

    def declaration(self, file: "Path | None") -> "Features":
        """Return the declaration of the encoder, whose file lies at ``file`` if it has one."""
        return find_features(**{**self.model_dump(), "file": None if file is None else str(file.absolute())})


class DataSettings(Section):
    """A bundled data set by ``name``, or a file of one's own by ``path`` with its declarations."""

    name: str | None = None
    path: Annotated[str, FileName()] | None = None
    target: str | None = None
    evaluation: Annotated[Evaluation, Name(names=Evaluation, fixed=True)] | None = None
    unit: str | None = None
    ranges: Annotated[str, FileName()] | None = None
    classes: Annotated[tuple[str, ...], Classes()] | None = None
    block: str | None = None
    blocks: Annotated[tuple[str, ...], BlockNames()] | None = None
    splits: SplitSettings | None = None
    colour: Annotated[ColourSpace, Name(names=ColourSpace, fixed=True)] | None = None
    centre: Annotated[tuple[float, ...], Centre()] | None = None
    normalise: Annotated[float, Number(at_least=SMALLEST, at_most=LARGEST, fixed=True)] | None = None
    features: FeatureSettings | None = None

    @property
    def is_table(self) -> bool:
        """Whether its rows are known to be those of a table before they are read, and not features."""
        return self.features is None and (self.name is None or is_table(self.name))

    def preparation(self) -> "Preparation | None":
        """Return what is done to each example, ``None`` for nothing."""
        from clipless.datasets import Preparation

        made = Preparation(colour=self.colour or ColourSpace.RGB, centre=self.centre or (), normalise=self.normalise)
        return None if made == Preparation() else made

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.path is None):
            raise bad_value("exactly one of name and path", got=[self.name, self.path])
        prepared = next((key for key in ("colour", "centre", "normalise") if getattr(self, key) is not None), None)
        if self.features is not None and prepared is not None:
            expected = "no {name} beside features, whose encoder has resize, mean, std and clip"
            raise bad_value(expected, path=prepared, got=self.model_dump(mode="json")[prepared], remedy="leave it out")
        own: dict[str, Any] = {"target": self.target, "unit": self.unit, "ranges": self.ranges, "classes": self.classes}
        own |= {"block": self.block, "blocks": self.blocks}
        given = [key for key, value in own.items() if value is not None and value != "row"]
        if self.path is None and given:
            expected = f"no {{name}} for the bundled data set {self.name}, which declares its own"
            raise bad_value(expected, path=given[0], got=own[given[0]], remedy="leave it out")
        return self
