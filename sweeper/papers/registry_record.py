"""A record of the public registry of differential privacy deployments (OpenDP and NIST), tier 3, as YAML.

The layout is that of the registry's own records, `opendp/deployments-registry-data` on GitHub, as they were in 2026:
product, flavour of differential privacy, privacy loss, model, accounting, implementation, resources. A registry's board
reviews what is filed, so that every record is a draft. What the registry wants as a choice or a day and nobody has said
is a sentence here, which the registry refuses: that is for people to fill in.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from sweeper.papers import statements
from sweeper.privacy.card.content import CardContent
from sweeper.rounding import round_up

NOT_KNOWN = "^Not known; deployment\\.[a-z_]+ of the spec would say it\\.$"
Unknown = Annotated[str, Field(pattern=NOT_KNOWN)]
Day = Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
Words = Annotated[str, Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Product(_Section):
    """What is released, and by whom."""

    name: Words
    data_curators: Annotated[Sequence[Words], Field(min_length=1)]
    intended_use: Words
    data_product_type: Literal["Machine learning model"]
    data_product_region: Words
    description: Words
    publication_date: Day | Unknown
    data_product_sector: Words


class Flavour(_Section):
    """Which differential privacy."""

    name: Literal["Approximate DP"]
    data_domain: Words
    unprotected_quantities: Words


class Parameters(_Section):
    """The parameters of the claim."""

    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)]


class PrivacyLoss(_Section):
    """Unit and parameters; no parameters where nothing is claimed."""

    privacy_unit: Words
    privacy_unit_description: Words
    privacy_parameters: Parameters | None = None
    privacy_parameters_description: Words


class TrustModel(_Section):
    """Who is trusted, what is released how often, and who may ask."""

    model_name: Literal["Central"]
    model_name_description: Words
    actors: Words
    release_type: Literal["One release"]
    release_type_description: Words
    data_source_type: Literal["Static"]
    data_source_type_description: Words
    access_type: Literal["Non-interactive"]
    access_type_description: Words


class Accounting(_Section):
    """How losses add up."""

    post_processing: Words
    composition: Words


class Implementation(_Section):
    """How it was done, and why so."""

    pre_processing_eda_hyperparameter_tuning: Words
    mechanisms: Words
    justification: Words


class Resources(_Section):
    """Where to read more, and who filled in the record."""

    sources: Words
    registry_authors: Annotated[Sequence[Words], Field(min_length=1)]


class Deployment(_Section):
    """One deployment."""

    product: Product
    dp_flavor: Flavour
    privacy_loss: PrivacyLoss
    model: TrustModel
    accounting: Accounting
    implementation: Implementation
    resources: Resources


class RegistryRecord(_Section):
    """A record, to be reviewed."""

    status: Literal["Draft"]
    tier: Literal[3]
    deployment: Deployment


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, as the registry wants them."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def registry_schema() -> dict[str, Any]:
    """Return the JSON schema of a record."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RegistryRecord.model_json_schema()}


def registry_record(card: CardContent) -> str:
    """Return the record of a model, as YAML, from the content of its card."""
    record = RegistryRecord(status="Draft", tier=3, deployment=_deployment(card))
    content = record.model_dump(exclude_none=True)
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)


def _deployment(card: CardContent) -> Deployment:
    return Deployment(
        product=_product(card),
        dp_flavor=Flavour(
            name="Approximate DP",
            data_domain=statements.data_domain(card),
            unprotected_quantities=_bullets(statements.unprotected(card)),
        ),
        privacy_loss=_privacy_loss(card),
        model=_trust(card),
        accounting=Accounting(
            post_processing=statements.post_processing(card), composition=statements.composition(card)
        ),
        implementation=Implementation(
            pre_processing_eda_hyperparameter_tuning=statements.tuning(card),
            mechanisms=_bullets(
                [
                    *statements.mechanisms(card),
                    *statements.implementation(card),
                    f"Access to the data before noise: {statements.said(card, 'access')}",
                ]
            ),
            justification=_bullets([statements.said(card, "purpose"), *statements.attacks(card), *card.conditions]),
        ),
        resources=Resources(sources=_sources(card), registry_authors=[statements.said(card, "contact")]),
    )


def _product(card: CardContent) -> Product:
    return Product(
        name=card.deployment.get("product") or f"{card.sweep}, trial {card.trial}, epoch {card.epoch}",
        data_curators=[statements.said(card, "curator")],
        intended_use=statements.said(card, "intended_use"),
        data_product_type="Machine learning model",
        data_product_region=statements.said(card, "region"),
        description=statements.said(card, "description"),
        publication_date=statements.said(card, "published"),
        data_product_sector=statements.said(card, "sector"),
    )


def _privacy_loss(card: CardContent) -> PrivacyLoss:
    epsilon, _ = statements.price_that_holds(card)
    claimed = not card.exploratory and 0.0 < epsilon < float("inf")
    parameters = Parameters(epsilon=float(round_up(epsilon, 6)), delta=card.guarantee.delta) if claimed else None
    more = [
        statements.claim(card),
        statements.risk(card),
        *statements.several_rows(card),
    ]
    return PrivacyLoss(
        privacy_unit=statements.unit(card),
        privacy_unit_description=statements.adjacency(card),
        privacy_parameters=parameters,
        privacy_parameters_description=_bullets(more),
    )


def _trust(card: CardContent) -> TrustModel:
    return TrustModel(
        model_name="Central",
        model_name_description="One machine, or the machines of one cluster, read the rows and draw the noise.",
        actors=_bullets(
            [
                f"Curator: {statements.said(card, 'curator')}",
                "The curator is trusted with the rows, the machine and this program.",
                "Whoever gets the model or this record: not trusted; everything they see has its price above.",
                f"Contact: {statements.said(card, 'contact')}",
            ]
        ),
        release_type="One release",
        release_type_description=f"One model. {statements.said(card, 'retention')}",
        data_source_type="Static",
        data_source_type_description=f"The rows are fixed when the sweep begins. {statements.said(card, 'collection')}",
        access_type="Non-interactive",
        access_type_description="The model is handed out as a file; queries of it read no private row.",
    )


def _sources(card: CardContent) -> str:
    hashes = [f"{name}: SHA-256 {found}" for name, found in (card.files or {}).items()]
    return _bullets([f"Privacy card of {card.sweep}, trial {card.trial}, epoch {card.epoch}", *hashes])


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
