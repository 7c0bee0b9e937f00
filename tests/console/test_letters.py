"""Dead letters one by one, without a browser."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.views.letters import EDITED_MAX, BadLetter, editable, edited_value, parse_place, seen_letter
from penstock.console.views.masking import parse_rule
from penstock.pipelines.operate.dead_letters import DEAD, REPLAYED, Letter, replay


def letter(value: bytes | None) -> Letter:
    headers = ((f"{DEAD}topic", b"payments"), (f"{DEAD}partition", b"2"), ("trace", b"t"))
    return Letter(topic="p.dead-letters", partition=1, offset=7, key=b"k", value=value, headers=headers, timestamp_ms=5)


def test_places() -> None:
    assert parse_place("3:17") == (3, 17)
    for text in ("", "3", ":", "a:1", "1:-1", "1:" + "9" * 40):
        with pytest.raises(BadLetter):
            parse_place(text)


def test_what_can_be_edited() -> None:
    assert editable(letter(b'{"a":{"b":1}}'), ()) == '{\n  "a": {\n    "b": 1\n  }\n}'
    assert editable(letter("{Köln".encode()), ()) == "{Köln"
    assert editable(letter(None), ()) == ""
    assert editable(letter(b"[" * 5000), ()) == "[" * 5000
    for value in (b"\xff", b"x" * (EDITED_MAX + 1)):
        with pytest.raises(BadLetter):
            editable(letter(value), ())


def test_masks_of_the_topic_it_came_from_hide_fields_of_a_letter() -> None:
    rules = (parse_rule("payments:card"),)
    assert b"4111" not in (seen_letter(letter(b'{"card": "4111"}'), rules).value or b"")
    assert b"4111" not in (seen_letter(letter(b"4111"), rules).value or b"")
    with pytest.raises(BadLetter, match="hidden"):
        editable(letter(b'{"card": "4111"}'), rules)
    assert seen_letter(letter(b"4111"), (parse_rule("others:card"),)) == letter(b"4111")


def test_an_edited_value_is_checked() -> None:
    assert edited_value('{"a":  1}', must_be_json=True) == b'{"a":  1}'
    assert edited_value('{\r\n "a": "\u00f6"}', must_be_json=True) == '{"a": "ö"}'.encode()
    assert edited_value("a\r\nb", must_be_json=False) == b"a\nb"
    for text, says in (
        ("{", "line 1, column 2"),
        ("", "line 1"),
        ("NaN", "NaN is not JSON"),
        ("[" * 100_000, "nested"),
    ):
        with pytest.raises(BadLetter, match=says):
            edited_value(text, must_be_json=True)
    with pytest.raises(BadLetter, match="longer"):
        edited_value("x" * (EDITED_MAX + 1), must_be_json=False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_not_changed_stays_the_same_document(document: object) -> None:
    value = json.dumps(document).encode()
    assert json.loads(edited_value(editable(letter(value), ()), must_be_json=True)) == document


def test_an_edited_record_keeps_everything_else() -> None:
    plain, edited = replay(letter(b"a")), replay(letter(b"a"), edited=b"b")
    assert (plain.value, edited.value) == (b"a", b"b")
    assert (edited.topic, edited.partition, edited.key) == ("payments", 2, b"k")
    assert set(edited.headers) - set(plain.headers) == {(f"{REPLAYED}edited", b"true")}
