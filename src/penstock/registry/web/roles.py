"""What a user may do: roles by subject prefix.

A file of roles is TOML, a table for each user, with prefixes of subjects; an empty prefix is everything:

    [alice]
    read = [""]
    write = ["orders-", ":.billing:"]

    [ops]
    admin = [""]

`read` is for schemas, lookups and checks of compatibility; `write` also for registrations and soft deletions; `admin`
also for permanent deletions, configuration and modes. Who has a role for a prefix has it for every longer one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from penstock.client.errors import BadSetting


class Role(IntEnum):
    READ = 1
    WRITE = 2
    ADMIN = 3


Prefixes = tuple[tuple[str, Role], ...]


class Roles:
    def __init__(self, by_user: Mapping[str, Prefixes]) -> None:
        self._by_user = dict(by_user)

    def allows(self, user: str, role: Role, subject: str) -> bool:
        return any(subject.startswith(prefix) and granted >= role for prefix, granted in self._by_user.get(user, ()))

    @classmethod
    def read(cls, path: str) -> Roles:
        try:
            with open(path, "rb") as file:
                content = tomllib.load(file)
        except OSError as error:
            raise BadSetting(f"{path}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadSetting(f"{path}: not a TOML file: {error}") from None
        return cls({user: _prefixes(path, user, table) for user, table in content.items()})


def _prefixes(path: str, user: str, table: Any) -> Prefixes:
    names = {role.name.lower(): role for role in Role}
    found: list[tuple[str, Role]] = []
    for name, prefixes in table.items() if isinstance(table, dict) else [(None, None)]:
        if name not in names or not isinstance(prefixes, list) or not all(isinstance(each, str) for each in prefixes):
            raise BadSetting(f"{path}: user {user} needs read, write or admin, each a list of subject prefixes")
        found += [(prefix, names[name]) for prefix in prefixes]
    return tuple(found)
