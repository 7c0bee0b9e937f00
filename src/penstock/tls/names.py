"""The names in certificates: distinguished names as Java writes them, and the rules that make principals of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from penstock.security.principal import Principal

# The attributes that RFC 2253 has short names for; Java writes all others as a number and the bytes of the value.
_SHORT_NAMES: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_ESCAPED: Final = re.compile(r'([,+"\\<>;])')


def distinguished_name(name: x509.Name) -> str:
    """Return a name as RFC 2253 says, the most specific part first: `CN=alice,OU=trucks,O=Example`."""
    return ",".join("+".join(_attribute(attribute) for attribute in rdn) for rdn in reversed(list(name.rdns)))


def subject_alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(f"{type(name).__name__}:{name.value}" for name in extension.value)


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    short = _SHORT_NAMES.get(attribute.oid)
    if short is None or isinstance(attribute.value, bytes):
        return f"{attribute.oid.dotted_string}=#{_encoded_value(attribute).hex()}"
    return f"{short}={_escape(attribute.value)}"


def _escape(value: str) -> str:
    text = _ESCAPED.sub(r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if len(value) > 1 and value.endswith(" "):
        text = text[:-1] + "\\ "
    return text


def _encoded_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """Return the DER of an attribute's value: the last element of Name { RDN { Attribute { OID, value } } }."""
    data = x509.Name([attribute]).public_bytes()
    for _ in range(3):
        data = data[_header_size(data) :]
    return data[_header_size(data) + data[1] :]  # after the OID, which is always short


def _header_size(data: bytes) -> int:
    return 2 + (data[1] & 0x7F if data[1] & 0x80 else 0)


# -- ssl.principal.mapping.rules ------------------------------------------------------------------------------------


class NoRuleMatches(Exception):
    """No rule of `ssl.principal.mapping.rules` matches a distinguished name, which is the argument."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        result = match.expand(self.replacement)
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)


class PrincipalRules:
    """The rules, in order: `DEFAULT`, or `RULE:pattern/replacement/[LU]`. The first rule that matches decides."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = tuple(rules)

    @classmethod
    def parse(cls, text: str) -> PrincipalRules:
        """ValueError names the part that is no rule."""
        rules, position = [], 0
        text = text.strip() or "DEFAULT"
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise ValueError(f"{text[position:]!r} is not DEFAULT or RULE:pattern/replacement/[LU]")
            position = match.end()
            rules.append(_Rule(None) if match["pattern"] is None else _rule(match))
        return cls(rules)

    def principal_of(self, name: str) -> Principal:
        for rule in self._rules:
            mapped = rule.apply(name)
            if mapped is not None:
                return Principal("User", mapped)
        raise NoRuleMatches(name)


_RULE: Final = re.compile(
    r"\s*(?:DEFAULT|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)


def _rule(match: re.Match[str]) -> _Rule:
    try:
        pattern = re.compile(match["pattern"])
    except re.error as error:
        raise ValueError(f"{match['pattern']!r} is not a regular expression: {error}") from None
    replacement = match["replacement"].replace("\\/", "/")
    # Java writes a group as $1, Python as \g<1>; other backslashes are literal here.
    parts = re.split(r"\$([0-9])", replacement)
    for index, part in enumerate(parts):
        parts[index] = rf"\g<{part}>" if index % 2 else part.replace("\\", "\\\\")
    if any(int(number) > pattern.groups for number in re.findall(r"\$([0-9])", replacement)):
        raise ValueError(f"{match['replacement']!r} names a group that {match['pattern']!r} does not have")
    return _Rule(pattern, "".join(parts), match["case"])
