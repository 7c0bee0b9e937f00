"""Distinguished names are written as Java writes them; mapping rules make users of them as Kafka's do."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from penstock.security.principal import Principal
from penstock.tls.names import NoRuleMatches, PrincipalRules, distinguished_name


def name(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


def test_the_most_specific_part_comes_first() -> None:
    subject = name((NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, "alice"))
    assert distinguished_name(subject) == "CN=alice,O=Example,C=DE"


def test_special_characters_are_escaped() -> None:
    subject = name((NameOID.ORGANIZATION_NAME, 'a,b+c"d'), (NameOID.COMMON_NAME, "#1 "))
    assert distinguished_name(subject) == 'CN=\\#1\\ ,O=a\\,b\\+c\\"d'


def test_attributes_without_a_short_name_are_numbers_and_bytes() -> None:
    subject = name((NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.COMMON_NAME, "alice"))
    assert distinguished_name(subject) == "CN=alice,1.2.840.113549.1.9.1=#1605614062" + "2e63"


def test_several_values_in_one_part() -> None:
    part = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.COMMON_NAME, "alice"), x509.NameAttribute(NameOID.USER_ID, "7")]
    )
    assert set(distinguished_name(x509.Name([part])).split("+")) == {"CN=alice", "UID=7"}


@pytest.mark.parametrize(
    ("rules", "dn", "user"),
    [
        ("DEFAULT", "CN=alice,O=x", "CN=alice,O=x"),
        ("", "CN=alice,O=x", "CN=alice,O=x"),
        ("RULE:^CN=(.*?),.*$/$1/", "CN=alice,O=x", "alice"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U, DEFAULT", "CN=alice,OU=trucks,O=x", "ALICE@TRUCKS"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L, DEFAULT", "CN=Bob", "CN=Bob"),
        (r"RULE:^CN=(.*)$/a\/$1/L", "CN=Bob", "a/bob"),
        (r"RULE:^CN=([^,]*),.*$/back\slash-$1/", "CN=Bob,C=DE", r"back\slash-Bob"),
    ],
)
def test_rules(rules: str, dn: str, user: str) -> None:
    assert PrincipalRules.parse(rules).principal_of(dn) == Principal("User", user)


def test_a_name_that_no_rule_matches() -> None:
    with pytest.raises(NoRuleMatches):
        PrincipalRules.parse("RULE:^CN=(a.*)$/$1/").principal_of("CN=bob")


@pytest.mark.parametrize("text", ["RULE:a", "RULE:(/x/", "default", "RULE:a/$1/", "DEFAULT DEFAULT", "RULE:a/b/X"])
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|names a group"):
        PrincipalRules.parse(text)
