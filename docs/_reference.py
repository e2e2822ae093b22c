"""What is written from the code whenever the guide is built.

The page ``spec-reference.md`` comes from the JSON schema of a spec, the schemas of cards and records from their types.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from sweeper.papers.registry_record import registry_schema
from sweeper.privacy.card.content import card_schema
from sweeper.specification.spec import schema

PAGE = "spec-reference.md"
_LIMITS = {"minimum": ">= {}", "exclusiveMinimum": "> {}", "maximum": "<= {}", "exclusiveMaximum": "< {}"}
_LIMITS |= {"multipleOf": "a multiple of {}", "minLength": "at least {} characters", "minItems": "at least {} of them"}
_SCALES = {"uniform", "log", "int", "log_int"}
_KINDS = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "`true` or `false`"}
_INTRODUCTION = """# Reference of the spec

Every key of a spec with what it takes, written from the schema that `sweeper schema` prints. [The spec](spec.md) says
what the keys mean. An *open* key also takes a list of choices or, if it is a number, a range.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page and the schemas; called by mkdocs."""
    files.append(File.generated(config, PAGE, content=reference(schema())))
    for name, content in (("card", card_schema()), ("registry", registry_schema())):
        files.append(File.generated(config, f"schemas/{name}.json", content=json.dumps(content, indent=2) + "\n"))
    return files


def reference(whole: Mapping[str, Any]) -> str:
    """Return the page as Markdown."""
    sections = {name: _definition(whole, field) for name, field in whole["properties"].items()}
    sections["data.splits"] = whole["$defs"]["SplitSettings"]
    return "\n".join([_INTRODUCTION, *(line for item in sections.items() for line in _section(*item))])


def _definition(whole: Mapping[str, Any], field: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(field.get("$ref", "")).rpartition("/")[2]
    definition: Mapping[str, Any] = whole["$defs"].get(name, field)
    return definition


def _section(name: str, definition: Mapping[str, Any]) -> Iterator[str]:
    yield f"\n## {name}\n"
    if "properties" not in definition:
        yield f"{_taken(definition)}\n"
        return
    yield f"{definition['description'].replace('``', '`')}\n"
    yield "| key | takes | open | default |\n|---|---|---|---|"
    for key, field in definition["properties"].items():
        required = key in definition.get("required", ())
        default = "required" if required else _default(field.get("default"))
        yield f"| `{key}` | {_taken(field)} | {'yes' if _is_open(field) else ''} | {default} |"


def _variants(field: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in field.get("anyOf", [field]) if one.get("type") != "null"]


def _is_open(field: Mapping[str, Any]) -> bool:
    """Whether a list of what the field takes is taken too."""
    variants = _variants(field)
    names = [one for one in variants if "enum" in one or one.get("type") == "boolean"]
    return any(_is_range(one) or one.get("items") in names or "anyOf" in one.get("items", {}) for one in variants)


def _taken(field: Mapping[str, Any]) -> str:
    variants = _variants(field)
    if _is_open(field):
        variants = [one for one in variants if one.get("type") != "array" and not _is_range(one)]
    return " or ".join(dict.fromkeys(map(_one, variants)))


def _is_range(variant: Mapping[str, Any]) -> bool:
    return bool(_SCALES & variant.get("properties", {}).keys())


def _one(variant: Mapping[str, Any]) -> str:
    if "enum" in variant:
        return ", ".join(f"`{value}`" for value in variant["enum"])
    if "const" in variant:
        return f"`{variant['const']}`"
    if "$ref" in variant:
        return "a section of its own, below"
    if "const" in variant.get("properties", {}).get("name", {}):
        return "one of these with parameters of its own, `{name: ..., ...}`"
    limits = [text.format(variant[key]) for key, text in _LIMITS.items() if key in variant]
    if variant.get("type") == "array":
        kind = f"a list, each {_one(variant['items'])}"
    elif variant.get("type") == "object":
        kind = "a mapping"
    else:
        names = variant["type"] if isinstance(variant["type"], list) else [variant["type"]]
        kind = " or ".join(_KINDS[name] for name in names)
    return ", ".join([kind, *limits])


def _default(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case list():
            return f"`[{', '.join(str(one['name'] if isinstance(one, dict) else one) for one in value)}]`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
