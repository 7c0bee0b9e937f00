"""What the registry decides, request by request, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.registry.core import deletion, reading, records, registration, settings
from penstock.registry.core.candidate import Candidate, read_candidate
from penstock.registry.core.errors import RegistryError
from penstock.registry.core.names import checked, context_named, normalized
from penstock.registry.core.records import SchemasRecord, UnreadableRecord
from penstock.schemas import Reference
from registry_nodes import record_schema
from registry_world import Registry

A1 = record_schema("A", "x")
A2 = record_schema("A", "x", optional=("y",))
BROKEN = record_schema("A", "x", "z")


@pytest.fixture
def registry() -> Registry:
    return Registry()


def code_of(action: Callable[[], object]) -> int:
    with pytest.raises(RegistryError) as caught:
        action()
    return caught.value.code


def test_the_same_schema_keeps_its_id(registry: Registry) -> None:
    first = registry.register("a-value", A1)
    assert (first["id"], first["version"]) == (1, 1)
    written = len(registry.log)
    again = registry.register("a-value", json.dumps(json.loads(A1), indent=2))
    assert (again["id"], again["version"]) == (1, 1)
    assert len(registry.log) == written
    elsewhere = registry.register("b-value", A1)
    assert (elsewhere["id"], elsewhere["version"], elsewhere["guid"]) == (1, 1, first["guid"])
    assert registry.register("a-value", A2)["id"] == 2
    assert [each.subject for each in registry.state.with_id(".", 1)] == ["a-value", "b-value"]


def test_an_incompatible_schema_is_refused_unless_the_level_allows_it(registry: Registry) -> None:
    registry.register("a-value", A1)
    assert code_of(lambda: registry.register("a-value", BROKEN)) == 409
    registry.apply(settings.set_config(registry.state, "a-value", {"compatibility": "none"}))
    assert registry.register("a-value", BROKEN)["version"] == 2
    registry.apply(settings.delete_config(registry.state, "a-value"))
    assert settings.get_config(registry.state, "a-value", in_scope=True)["compatibilityLevel"] == "BACKWARD"
    assert code_of(lambda: settings.get_config(registry.state, "a-value", in_scope=False)) == 40408


def test_the_lenient_policy_lets_optional_properties_of_json_come(registry: Registry) -> None:
    text = {"type": "string"}
    old, new = (
        json.dumps({"type": "object", "properties": properties}) for properties in ({"a": text}, {"a": text, "b": text})
    )
    registry.register("a-value", old, schema_type="JSON")
    assert code_of(lambda: registry.register("a-value", new, schema_type="JSON")) == 409
    assert code_of(lambda: settings.set_config(registry.state, None, {"compatibilityPolicy": "kind"})) == 42203
    registry.apply(settings.set_config(registry.state, None, {"compatibilityPolicy": "lenient"}))
    assert registry.register("a-value", new, schema_type="JSON")["version"] == 2


def test_transitive_levels_look_at_all_versions(registry: Registry) -> None:
    registry.apply(settings.set_config(registry.state, None, {"compatibility": "NONE"}))
    registry.register("a-value", record_schema("A", "x", "z"))
    registry.register("a-value", record_schema("A", "x"))
    newer = record_schema("A", "x", optional=("q",))
    registry.apply(settings.set_config(registry.state, None, {"compatibility": "FORWARD_TRANSITIVE"}))
    assert code_of(lambda: registry.register("a-value", newer)) == 409
    registry.apply(settings.set_config(registry.state, None, {"compatibility": "FORWARD"}))
    assert registry.register("a-value", newer)["version"] == 3


def test_soft_and_permanent_deletion(registry: Registry) -> None:
    registry.register("a-value", A1)
    registry.register("a-value", A2)
    assert code_of(lambda: registry.hard("a-value", 1)) == 40407
    assert registry.soft("a-value", 1) == 1
    assert code_of(lambda: registry.soft("a-value", 1)) == 40406
    assert code_of(lambda: registry.soft("a-value", 7)) == 40402
    assert code_of(lambda: registry.soft("b-value", 1)) == 40401
    assert reading.list_versions(registry.state, "a-value") == [2]
    assert reading.list_versions(registry.state, "a-value", deleted=True) == [1, 2]
    assert reading.get_by_id(registry.state, 1, None).deleted
    assert registry.hard("a-value", 1) == 1
    assert code_of(lambda: reading.get_by_id(registry.state, 1, None)) == 40403

    def delete(permanent: bool) -> Any:
        return registry.apply(deletion.delete_subject(registry.state, "a-value", permanent=permanent))

    assert code_of(lambda: delete(True)) == 40405
    assert delete(False) == [2]
    assert code_of(lambda: delete(False)) == 40404
    assert delete(True) == [2]
    assert code_of(lambda: delete(True)) == 40401
    # The ids are not given again, though compaction leaves nothing of them but a note.
    assert registry.compacted().register("a-value", A1)["id"] == 3
    assert registry.register("a-value", A1)["id"] == 3


def test_a_deleted_schema_that_comes_again_is_a_new_version_with_its_old_id(registry: Registry) -> None:
    registry.register("a-value", A1)
    registry.register("a-value", A2)
    registry.soft("a-value", 1)
    again = registry.register("a-value", A1)
    assert (again["id"], again["version"]) == (1, 3)
    assert reading.list_versions(registry.state, "a-value", deleted=True) == [2, 3]


def test_references(registry: Registry) -> None:
    registry.register("x", record_schema("X", "a"))
    using = json.dumps({"type": "record", "name": "U", "fields": [{"name": "x", "type": "X"}]})
    assert code_of(lambda: registry.register("u", using)) == 42201
    assert code_of(lambda: registry.register("u", using, references=(Reference("X", "x", 2),))) == 42201
    registry.register("u", using, references=(Reference("X", "x", 1),))
    assert [each.subject for each in registry.state.referrers("x", 1, deleted=False)] == ["u"]
    assert code_of(lambda: registry.soft("x", 1)) == 42206
    assert code_of(lambda: deletion.delete_subject(registry.state, "x", permanent=False)) == 42206
    registry.soft("u", 1)
    registry.soft("x", 1)
    assert code_of(lambda: registry.hard("x", 1)) == 42206
    registry.hard("u", 1)
    assert registry.hard("x", 1) == 1


def test_references_of_a_topic_that_lead_in_a_circle_are_refused(registry: Registry) -> None:
    """Requests cannot make a circle; a topic that something else wrote may contain one."""
    for subject, other in (("a", "b"), ("b", "a")):
        reference = [{"name": other.upper(), "subject": other, "version": 1}]
        fields = [{"name": "x", "type": ["null", other.upper()]}]
        schema = json.dumps({"type": "record", "name": subject.upper(), "fields": fields})
        value = {"subject": subject, "version": 1, "id": ord(subject), "references": reference, "schema": schema}
        registry.state.replay(SchemasRecord(records.schema_key(subject, 1), value))
    using = json.dumps({"type": "record", "name": "U", "fields": [{"name": "a", "type": "A"}]})
    assert code_of(lambda: registry.register("u", using, references=(Reference("A", "a", 1),))) == 42201
    assert code_of(lambda: registry.register("a", A1)) == 42201
    assert reading.get_by_id(registry.state, ord("a"), None).subject == "a"


def test_records_that_are_not_understood_do_not_stop_the_replay(registry: Registry) -> None:
    registry.state.replay(SchemasRecord({"keytype": "ASSOC", "magic": 0}, {"guid": "x"}))
    for key, value in (({"keytype": "NEW"}, {}), (records.schema_key("s", 1), {"id": 1}), ({"keytype": "SCHEMA"}, {})):
        with pytest.raises(UnreadableRecord):
            registry.state.replay(SchemasRecord(key, value))
    for text in (b"", b"{", b"[]", b"1", b"[" * 100_000):
        with pytest.raises(UnreadableRecord):
            records.decode(text, b"{}")
    registry.register("a", A1)
    taken = {"subject": "b", "version": 1, "id": 1, "schema": A2, "deleted": False}
    with pytest.raises(UnreadableRecord, match="of another schema"):
        registry.state.replay(SchemasRecord(records.schema_key("b", 1), taken))


def test_contexts_have_their_own_ids_and_settings(registry: Registry) -> None:
    registry.register("a", A1)
    other = registry.register(":.ctx:a", A2)
    assert other["id"] == 1
    assert reading.list_contexts(registry.state) == [".", ".ctx"]
    assert reading.list_subjects(registry.state) == ["a"]
    assert reading.list_subjects(registry.state, ":.ctx:") == [":.ctx:a"]
    assert reading.list_subjects(registry.state, ":*:") == [":.ctx:a", "a"]
    assert reading.get_by_id(registry.state, 1, ":.ctx:a").schema != reading.get_by_id(registry.state, 1, "a").schema
    registry.apply(settings.set_config(registry.state, ":.ctx:", {"compatibility": "NONE"}))
    assert registry.state.config(":.ctx:a")["compatibilityLevel"] == "NONE"
    assert registry.state.config("a")["compatibilityLevel"] == "BACKWARD"
    registry.apply(settings.set_config(registry.state, ":.__GLOBAL:", {"compatibility": "FULL"}))
    assert registry.state.config("a")["compatibilityLevel"] == "FULL"
    assert code_of(lambda: deletion.delete_context(registry.state, ".ctx")) == 42211


def test_modes_and_import(registry: Registry) -> None:
    registry.apply(settings.set_mode(registry.state, "r", {"mode": "READONLY"}, force=False))
    assert code_of(lambda: registry.register("r", A1)) == 42205
    assert code_of(lambda: registry.register("a", A1, id=7)) == 42205
    registry.register("a", A1)
    assert code_of(lambda: settings.set_mode(registry.state, "a", {"mode": "IMPORT"}, force=False)) == 42205
    registry.apply(settings.set_mode(registry.state, "i", {"mode": "IMPORT"}, force=False))
    assert code_of(lambda: registry.register("i", A1)) == 42205
    imported = registry.register("i", A2, id=40, version=5)
    assert (imported["id"], imported["version"]) == (40, 5)
    assert code_of(lambda: registry.register("i", BROKEN, id=40, version=6)) == 42205
    assert code_of(lambda: registry.register("i", BROKEN, id=41, version=5)) == 42207
    assert code_of(lambda: settings.set_mode(registry.state, "a", {"mode": "NEVER"}, force=False)) == 42204
    assert registry.register("b", BROKEN)["id"] == 41
    assert registry.apply(settings.delete_mode(registry.state, "i")) == {"mode": "IMPORT"}
    assert code_of(lambda: settings.get_mode(registry.state, "i", in_scope=False)) == 40409


def test_metadata_is_part_of_a_schemas_identity(registry: Registry) -> None:
    plain = registry.register("a", A1)
    owned = registry.register("a", A1, metadata={"properties": {"owner": "bob"}})
    assert owned["id"] != plain["id"] and owned["guid"] != plain["guid"]
    assert registry.register("a", A2)["metadata"] == {"properties": {"owner": "bob"}}
    found = reading.latest_with_metadata(registry.state, "a", {"owner": "bob"}, deleted=False)
    assert found.version == 3


def test_a_text_that_another_registry_wrote_differently_is_found(registry: Registry) -> None:
    stored = '{"type":"record","name":"A","fields":[{"name":"x","type":{"type":"int"}}]}'
    value = {"subject": "a", "version": 1, "id": 9, "schema": stored, "deleted": False}
    registry.state.replay(SchemasRecord(records.schema_key("a", 1), value))
    parsed = registration.look_up(registry.state, registry.parser, "a", Candidate(stored))
    assert (parsed.id, parsed.version) == (9, 1)


def test_a_record_of_confluents_registry_is_read_and_ours_looks_the_same(registry: Registry) -> None:
    """The bytes are what Confluent's registry 7 writes for two subjects, a configuration and a deletion."""
    log = [
        (b'{"keytype":"NOOP","magic":0}', None),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            b'{"subject":"s","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
        ),
        (
            b'{"keytype":"SCHEMA","subject":"p","version":1,"magic":1}',
            b'{"subject":"p","version":1,"id":2,"schemaType":"PROTOBUF","schema":"message M {}","deleted":false}',
        ),
        (b'{"keytype":"DELETE_SUBJECT","subject":"p","magic":0}', b'{"subject":"p","version":1}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"subject":"s","mode":"READONLY"}'),
    ]
    for key, value in log:
        registry.state.replay(records.decode(key, value))
    assert registry.state.config("s")["compatibilityLevel"] == "FULL"
    assert registry.state.mode("s") == "READONLY"
    assert reading.list_subjects(registry.state) == ["s"]
    assert reading.get_by_id(registry.state, 2, None).schema_type == "PROTOBUF"
    version = registry.state.version("s", 1)
    assert version is not None and version.record().encoded() == log[2]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"schema": 1},
        {"id": "7"},
        {"schema": "x", "schemaType": "XML"},
        {"schema": "x", "references": {}},
        {"schema": "x", "references": [{"name": 1}]},
        {"schema": "x", "id": True},
        {"schema": "x", "metadata": []},
    ],
)
def test_bodies_of_another_form_are_refused(body: object) -> None:
    assert code_of(lambda: read_candidate(body)) in (422, 42201)


@pytest.mark.parametrize("subject", ["", "a\nb", "__GLOBAL", ":.ctx:", ":.__GLOBAL:a", "x" * 2000, "\x9f"])
def test_subjects_that_cannot_be(subject: str) -> None:
    assert code_of(lambda: checked(subject)) == 42208


def test_names() -> None:
    assert normalized(":.:a") == "a"
    assert normalized(":.ctx") == ":.ctx:"
    assert {context_named(each) for each in ("ctx", ".ctx", ":.ctx:")} == {".ctx"}
    assert checked("'; DROP TABLE schemas; --/../../etc/passwd") == "'; DROP TABLE schemas; --/../../etc/passwd"
