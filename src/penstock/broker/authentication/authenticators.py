"""Plug-ins that check the passwords of PLAIN: where Kafka has callbacks in Java, here are entry points in Python.

A plug-in is a function that takes its options (the settings `penstock.authenticator.<name>.<option>`) and returns a
check: a function of a user and a password that returns whether they belong together. A package offers it as an entry
point of the group `penstock.authenticators`:

    [project.entry-points."penstock.authenticators"]
    ldap = "my_package:ldap_authenticator"

`password-file` is built in. Checks run in threads and may block. A plug-in that raises refuses the client. It must not
log passwords.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Final

from penstock.broker.authentication.password_file import PasswordFile
from penstock.model.errors import ErrorCode, KafkaError

GROUP: Final = "penstock.authenticators"

PasswordCheck = Callable[[str, str], bool]
Authenticator = Callable[[Mapping[str, str]], PasswordCheck]

BUILT_IN: Final[Mapping[str, Authenticator]] = {"password-file": PasswordFile}


def load_authenticator(name: str, options: Mapping[str, str]) -> PasswordCheck:
    authenticator = BUILT_IN.get(name) or _installed(name)
    try:
        return authenticator(options)
    except (OSError, ValueError) as error:
        raise _refusal(f"penstock.sasl.plain.authenticator={name}: {error}") from error


def _installed(name: str) -> Authenticator:
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        known = sorted({*BUILT_IN, *(each.name for each in entry_points(group=GROUP))})
        raise _refusal(
            f"penstock.sasl.plain.authenticator={name}: no installed package offers it as an entry point of {GROUP}; "
            f"there are: {', '.join(known)}"
        )
    if len(found) > 1:
        raise _refusal(f"penstock.sasl.plain.authenticator={name}: several packages offer it")
    authenticator: Authenticator = found[0].load()
    return authenticator


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
