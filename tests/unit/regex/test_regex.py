"""Regular expressions of clients: where the syntax is the same, they match what Python's own do."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.regex import InvalidRegex, Regex

atoms = st.sampled_from(
    [
        "a",
        "b",
        "c",
        r"\.",
        "-",
        ".",
        "[ab]",
        "[^a]",
        "[a-c]",
        "[^.]",
        r"\d",
        r"\w",
        r"\W",
        r"\b",
        r"\B",
        "^",
        "$",
        "é",
        r"[ж-э]",
        r"\s",
        r"\S",
    ]
)
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        inner.map("({})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "{,2}"])).map(
            "(?:{0[0]}){0[1]}".format
        ),
    ),
    max_leaves=8,
)
names = st.text("abc.-1_ é/Жж", min_size=1, max_size=6)


@given(expressions, st.lists(names, max_size=5))
def test_matches_what_it_should(expression: str, some: list[str]) -> None:
    # Python takes {,2} for a repetition; RE2, and Java, for three characters.
    known = re.compile(expression.replace("{,2}", r"\{,2\}"), re.ASCII)
    regex = Regex(expression)
    for name in some:
        assert regex.matches(name) == (known.fullmatch(name) is not None)


@given(st.text("ab()[]{}*+?|\\^$.-,:<>P=!1i", max_size=12))
def test_anything_is_an_expression_or_refused(expression: str) -> None:
    try:
        Regex(expression).matches("abab")
    except InvalidRegex as error:
        assert str(error)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("(?i)ORDERS-.*", "orders-1"),
        ("(?i:O)rders", "orders"),
        (r"\Qa.b\E.", "a.b1"),
        (r"[[:alpha:]]+-[[:digit:]]+", "ab-12"),
        (r"\pL\p{Nd}\P{L}", "a1-"),
        (r"\x61\x{62}\141", "aba"),
        ("(?P<first>a)(?<second>b)", "ab"),
        ("[]a]+", "a"),
        (r"[\w.-]+", "a.b-c"),
        ("a{1,2}{", "a{"),
        ("|a", "a"),
        (r"\Aorders\z", "orders"),
        ("(?i)straSSe-ΓΆΛΑ", "STRAs\u017fe-γάλα"),
        ("(?i)[ж-я]+", "ЖжЯ"),
        (r"(?i)[[:upper:]]\p{Lu}", "aé"),
        (r"\p{Greek}\p{Cyrillic}\p{Han}\p{Latin}", "λж水é"),
        (r"\p{L}\p{So}\pS\P{L}", "\U00010428🚀€ "),
        (r"[^a]\S\s[^\s/]", "🚀é\ta"),
        ("(?s)a.b", "a\nb"),
        ("(?:a(?i)+b)", "aaB"),
        (r"\é\-", "é-"),
        ("(?m)a$\n^b", "a\nb"),
        (r"[[:punct:]][[:space:]][\pN]", "{ ½"),
    ],
)
def test_syntax_of_re2(expression: str, name: str) -> None:
    assert Regex(expression).matches(name)
    assert not Regex(expression).matches(name + ".x" * 3) or expression.endswith((".*", "+"))


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("a.b", "a\nb"),
        ("a$\n^b", "a\nb"),
        (r"\w", "é"),
        (r"\d", "٣"),
        ("(?i)[^k]", "K"),
        (r"\PL", "é"),
        ("(?-s).", "\n"),
    ],
)
def test_what_does_not_match(expression: str, name: str) -> None:
    assert not Regex(expression).matches(name)


@pytest.mark.parametrize(
    "expression",
    [
        "(",
        ")",
        "[a",
        "[z-a]",
        "*a",
        "a**",
        "a++",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        r"(a)\1",
        "a{1001}",
        "(a{100}){100}",
        "a{2,1}",
        "a\\",
        r"\p{Klingon}",
        "[[:vowel:]]",
        "(?x)a",
        "(?P<a",
        "(?P<a>x)(?<a>y)",
        "{2}a",
        "a|(?i)*",
        r"\C",
        r"\y",
        "(" * 200 + ")" * 200,
    ],
)
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRegex):
        Regex(expression)


def test_nothing_takes_long() -> None:
    regex = Regex("(a*)*(a*)*(a|aa)*b")
    assert not regex.matches("a" * 249)
    assert regex.matches("a" * 248 + "b")
    # More places than are remembered at a time.
    wide = Regex("(.*a.{12})|(.*b.{13})")
    for number in range(300):
        name = f"{number:09b}".replace("1", "a").replace("0", "b") * 4
        assert wide.matches(name) == (name[-13] == "a" or name[-14] == "b")


@pytest.mark.parametrize("expression", [".*a.{0,900}", "(.*a.{0,30}){30}", ".*a.{20}", "(a|b|.)*a.{900}"])
def test_an_expression_made_to_take_long_is_refused(expression: str) -> None:
    chance = random.Random(expression)
    regex = Regex(expression)
    with pytest.raises(InvalidRegex, match="too much work"):
        for _ in range(10_000):
            regex.matches("".join(chance.choice("ab") for _ in range(100)))


@pytest.mark.parametrize(
    "expression",
    [
        r"company\..*events.*",
        r".*(orders|payments|service).*v[0-9]+.*",
        r"[a-z.-]{1,100}[0-9]{1,100}",
        r"(?i).*\bEVENTS\b.*",
    ],
)
def test_an_ordinary_expression_matches_any_number_of_names(expression: str) -> None:
    regex = Regex(expression)
    known = re.compile(expression)
    for number in range(20_000):
        name = f"company.region-{number % 7}.service-{number % 100}.events.v{number}"
        assert regex.matches(name) == (known.fullmatch(name) is not None)


@pytest.mark.parametrize(
    "expression",
    [
        r"\p{L}" * 6500,
        "[" + r"\p{L}" * 6500 + "]",
        "(?i)[" + r"\p{L}" * 6500 + "]",
        "(?i)" + r"[^\P{L}a]" * 3000,
        "(?i)" + "".join(f"[{chr(0x100 + number)}-\uffff]" for number in range(6500)),
        "(?i)[" + "".join(f"{chr(0x100 + number)}-\uffff" for number in range(6500)) + "]",
    ],
)
def test_large_sets_of_characters_are_refused_before_they_take_long(expression: str) -> None:
    """An expression comes in one string of a request: 32 kB, which took a minute to compile."""
    began = time.process_time()
    with pytest.raises(InvalidRegex, match="expression too large"):
        Regex(expression)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("expression", [r"(?i)[\p{L}\p{N}_-]+\.[\p{L}\p{N}_-]+", "(?i)" + "[a-z0-9._-]" * 249])
def test_sets_of_usual_expressions_are_small(expression: str) -> None:
    assert Regex(expression).matches("Ärger.1" if "L" in expression else "Aa" * 124 + "-")
