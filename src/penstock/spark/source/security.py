"""The security settings among the `kafka.*` options of the source and the sink.

Spark keeps options in plans, which it shows in its UI, writes to logs and ships to executors. So an option may say
where secrets are, but not contain one: `kafka.penstock.config` names a profile or a file with client settings, which
the driver and every executor read for themselves. Settings may also be options, by Kafka's names, and override the
file; secrets among them are references, such as `${secret:file:/run/secrets/password}`.

All of them become part of the bootstrap text (see `client.access`), so that everything that connects to the cluster
does so in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.client.access import Reference, is_secret, is_setting_of_clients, parse_reference
from penstock.client.errors import ClientError
from penstock.client.secrets import REFERENCE
from penstock.client.wire.cluster import parse_bootstrap
from penstock.settings.listeners import SECURITY_PROTOCOLS
from penstock.spark.source.errors import BadOption

CONFIG: Final = "penstock.config"
_PREFIXES: Final = ("sasl.", "ssl.", "security.")
# Java's own ways to do what is done here anyway.
_NEEDLESS: Final = ("ssl.provider", "ssl.keymanager.", "ssl.trustmanager.", "ssl.secure.random.", "sasl.login.")


def is_security(name: str) -> bool:
    return name.startswith(_PREFIXES) or name == CONFIG


def check_security(name: str, value: str) -> None:
    """`name` is without the prefix `kafka.`. Messages do not contain values: a secret may be misplaced."""
    if is_secret(name):
        if not REFERENCE.fullmatch(value):
            raise BadOption(
                f"kafka.{name} is a secret, and Spark shows options in plans and in its UI: put it into a file on "
                f"every machine, and name that file in kafka.{CONFIG}, or write ${{secret:file:PATH}}"
            )
        return
    if name == "security.protocol" and value.upper() not in SECURITY_PROTOCOLS:
        raise BadOption(f"kafka.security.protocol is not one of {', '.join(SECURITY_PROTOCOLS)}")
    if name != CONFIG and not is_setting_of_clients(name) and not name.startswith(_NEEDLESS):
        raise BadOption(f"kafka.{name} cannot be set: the client has no such setting")


def bootstrap_of(given: Mapping[str, str]) -> str:
    """The bootstrap addresses with a reference to the security settings; `given` is without the prefix `kafka.`."""
    servers, config = given.get("bootstrap.servers", ""), given.get(CONFIG, "")
    if "bootstrap.servers" not in given and not config:
        raise BadOption('kafka.bootstrap.servers is missing: option("kafka.bootstrap.servers", "host:9092")')
    try:
        reference = parse_reference(servers)
        if reference.addresses or not (reference.source or config):
            parse_bootstrap(reference.addresses)
    except ClientError as error:
        shown = "" if "@" in servers else f"={servers!r}"
        raise BadOption(f"kafka.bootstrap.servers{shown}: {error}") from None
    if reference.source and config:
        raise BadOption(f"kafka.bootstrap.servers and kafka.{CONFIG} both refer to client settings: leave one out")
    settings = {name: value for name, value in sorted(given.items()) if is_setting_of_clients(name)}
    return str(Reference(reference.addresses, reference.source or config, {**reference.settings, **settings}))
