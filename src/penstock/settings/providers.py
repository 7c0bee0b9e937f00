"""`config.providers`: values that are not in `server.properties` itself but in other files or in the environment.

    config.providers=file,env
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
    ssl.key.password=${file:/run/secrets/node.properties:key}
    delegation.token.secret.key=${env:TOKEN_SECRET}

The class names are Kafka's and mean providers of our own, which are opened elsewhere (`penstock.io`). A value that a
provider does not have is refused: Kafka would use the text `${...}` as the value, also as a password. As in Kafka, a
reference to a provider that `config.providers` does not name stays as it is; that causes a notice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.settings.definition import distinct, strings
from penstock.settings.listeners import refusal

# From a path (empty if there is none) and a key to a value. LookupError or OSError if there is no such value.
Provider = Callable[[str, str], str]
# From the name of a class and its parameters to a provider. LookupError if the class is unknown.
OpenProvider = Callable[[str, Mapping[str, str]], Provider]

PROVIDERS: Final = "config.providers"
_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    config_providers: tuple[str, ...] = strings(
        (),
        "The names of providers for values that are kept outside of this file: a value may contain ${NAME:PATH:KEY}. "
        "The class of each is config.providers.NAME.class, one of Kafka's FileConfigProvider, DirectoryConfigProvider "
        "and EnvVarConfigProvider.",
        distinct(),
    )


def resolve(properties: Mapping[str, str], open_provider: OpenProvider) -> dict[str, str]:
    """Replace the references to providers by their values. KafkaError(INVALID_CONFIG) if one cannot be had."""
    providers = {name: _open(name, properties, open_provider) for name in _names(properties)}
    if not providers:
        return dict(properties)
    return {
        name: text if name.startswith(PROVIDERS) else _replaced(name, text, providers)
        for name, text in properties.items()
    }


def is_of_provider(name: str) -> bool:
    return name.startswith(f"{PROVIDERS}.")


def unknown_references(properties: Mapping[str, str]) -> Iterator[str]:
    """Notices about values that look like references, and are none."""
    known = _names(properties)
    for name, text in properties.items():
        for match in _REFERENCE.finditer(text):
            if match[1] in ("file", "env", "dir", "directory") and match[1] not in known:
                yield f"{name} refers to the provider {match[1]}, which {PROVIDERS} does not name: it is used as it is"


def _names(properties: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in properties.get(PROVIDERS, "").split(",") if name.strip()]


def _open(name: str, properties: Mapping[str, str], open_provider: OpenProvider) -> Provider:
    setting = f"{PROVIDERS}.{name}.class"
    prefix = f"{PROVIDERS}.{name}.param."
    parameters = {each[len(prefix) :]: text for each, text in properties.items() if each.startswith(prefix)}
    try:
        return open_provider(properties.get(setting, "").strip(), parameters)
    except LookupError as error:
        raise refusal(f"{setting}: {error.args[0]}") from None


def _replaced(name: str, text: str, providers: Mapping[str, Provider]) -> str:
    def value_of(match: re.Match[str]) -> str:
        provider = providers.get(match[1])
        if provider is None:
            return match[0]
        try:
            return provider(match[2] or "", match[3])
        except LookupError as error:
            raise refusal(f"{name}: {match[0]}: {error.args[0]}") from None
        except OSError as error:
            raise refusal(f"{name}: {match[0]}: {error.strerror}") from None

    return _REFERENCE.sub(value_of, text)
