"""Settings of a node for topics that check schema ids, by Confluent's names; the topics' own are in `topic`."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings.definition import Type, setting, string


@dataclass(frozen=True, kw_only=True)
class SchemaValidationSettings:
    confluent_schema_registry_url: str = string(
        "",
        "The addresses of the schema registry, with commas between them, that knows the schema ids of topics with "
        "confluent.value.schema.validation or confluent.key.schema.validation. A setting of Confluent's.",
    )
    confluent_basic_auth_user_info: str | None = setting(
        Type.PASSWORD, None, "USER:PASSWORD for the schema registry. A setting of Confluent's."
    )
