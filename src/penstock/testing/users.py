"""The security of a cluster for tests: TLS and passwords on every listener, and an authorizer.

A certificate authority and all passwords except those of the users are made for the run. Every user may do everything
until the test creates ACLs for a resource, which then apply. `admin` and the nodes are super users.
"""

from __future__ import annotations

import datetime
import os
import re
import secrets
from collections.abc import Mapping
from typing import Final

from penstock.client.errors import BadSetting
from penstock.settings.jaas import PLAIN_MODULE, SCRAM_MODULE

ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
_NODE: Final = "node"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_LISTENERS: Final = ("plaintext", "controller")  # as the tools for local clusters name them


class Security:
    def __init__(self, directory: str, users: Mapping[str, str]) -> None:
        """`users` are passwords by name. Files with keys and client settings are written to `directory`."""
        for name in users:
            if not _NAME.fullmatch(name) or name in (ADMIN, _NODE):
                raise BadSetting(
                    f"{name!r} cannot be a user: letters, digits, '.', '_' and '-', not {ADMIN} or {_NODE}"
                )
        self._directory = directory
        self.users = dict(users)
        self._admin, self._node = secrets.token_urlsafe(), secrets.token_urlsafe()
        self._write_certificates()

    def __repr__(self) -> str:
        return f"Security({sorted(self.users)}, passwords hidden)"

    @property
    def node_properties(self) -> dict[str, str]:
        known = {**self.users, ADMIN: self._admin, _NODE: self._node}
        listed = " ".join(f"user_{name}={_quoted(password)}" for name, password in known.items())
        jaas = f"{PLAIN_MODULE} required username={_NODE} password={_quoted(self._node)} {listed};"
        return {
            "listener.security.protocol.map": ",".join(f"{name.upper()}:SASL_SSL" for name in _LISTENERS),
            "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            **{f"listener.name.{name}.plain.sasl.jaas.config": jaas for name in _LISTENERS},
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._path("node.pem"),
            **self._trust,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{_NODE};User:{ADMIN}",
            "allow.everyone.if.no.acl.found": "true",
        }

    def client_properties(self, user: str = ADMIN) -> dict[str, str]:
        """Client settings by Kafka's names; users log in with SCRAM, and `admin` with PLAIN."""
        if user == ADMIN:
            mechanism, module, password = "PLAIN", PLAIN_MODULE, self._admin
        elif user in self.users:
            mechanism, module, password = MECHANISM, SCRAM_MODULE, self.users[user]
        else:
            raise BadSetting(f"there is no user {user!r}; there are {', '.join([ADMIN, *self.users])}")
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{module} required username={_quoted(user)} password={_quoted(password)};",
            **self._trust,
        }

    def write_client_file(self, user: str, bootstrap: str) -> str:
        """The path of a file with the settings, as for `--command-config`."""
        path = self._path(f"{user}.properties")
        properties = {"bootstrap.servers": bootstrap, **self.client_properties(user)}
        lines = (f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in properties.items())
        _write_private(path, "".join(lines))
        return path

    @property
    def _trust(self) -> dict[str, str]:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": self._path("ca.pem")}

    def _write_certificates(self) -> None:
        try:
            from penstock.tls.authority import Authority
        except ImportError as error:
            raise BadSetting("users need the extra `security` (pip install 'penstock[security]')") from error
        now = datetime.datetime.now(datetime.UTC)
        authority = Authority.create("penstock tests", now)
        _write_private(self._path("ca.pem"), authority.certificate)
        _write_private(self._path("node.pem"), authority.issue(_NODE, ["localhost", "127.0.0.1"], now).pem)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write_private(path: str, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
