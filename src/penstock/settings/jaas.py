"""JAAS text in `sasl.jaas.config`: one login module of Kafka's with its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="..." user_alice="...";

No Java is involved: the class names stand for our own mechanisms. Messages never contain values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.settings.listeners import refusal

_PACKAGE: Final = "org.apache.kafka.common.security"
PLAIN_MODULE: Final = f"{_PACKAGE}.plain.PlainLoginModule"
SCRAM_MODULE: Final = f"{_PACKAGE}.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule"
MODULE_OF: Final = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTHBEARER_MODULE,
}
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | /\*.*?\*/ | \#[^\n]*
    | (?P<quoted>"(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*')
    | (?P<sign>[=;])
    | (?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_USER: Final = "user_"


class JaasEntry(NamedTuple):
    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module}, values hidden)"

    @property
    def users(self) -> dict[str, str]:
        """The passwords of PLAIN's users, by name."""
        return {name[len(_USER) :]: value for name, value in self.options.items() if name.startswith(_USER)}


def parse_jaas(setting: str, text: str) -> JaasEntry:
    """`setting` is for messages. Raises KafkaError(INVALID_CONFIG)."""
    tokens = _tokens(setting, text)
    if len(tokens) < 3 or tokens[-1] != (";", False):
        raise refusal(f"{setting} must be one login module with a control flag, options, and a semicolon at its end")
    (module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise refusal(f"{setting}: after the login module comes a control flag such as `required`")
    options: dict[str, str] = {}
    if len(rest) % 3:
        raise refusal(f"{setting}: options are name=value, and there is one login module only")
    for position in range(0, len(rest), 3):
        (name, _), (sign, is_quoted), (value, _) = rest[position : position + 3]
        if sign != "=" or is_quoted:
            raise refusal(f"{setting}: options are name=value, and there is one login module only")
        options[name] = value
    return JaasEntry(module, options)


def _tokens(setting: str, text: str) -> list[tuple[str, bool]]:
    """The words and signs, with whether each was quoted."""
    found: list[tuple[str, bool]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise refusal(f"{setting}: a quotation mark at character {position + 1} has no end")
        position = match.end()
        if match["quoted"] is not None:
            found.append((_unquote(match["quoted"]), True))
        elif match["sign"] or match["word"]:
            found.append((match[0], False))
    return found


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)
