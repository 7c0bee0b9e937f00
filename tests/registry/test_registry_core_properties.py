"""Laws of the registry, over random histories of requests.

- The log replayed, and the compacted log replayed, give the state that the requests saw.
- No id is ever given to two schemas of a context, also when every permanent deletion is followed by a compaction and a
  restart.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.registry.core import deletion, settings
from penstock.registry.core.errors import RegistryError
from registry_nodes import record_schema
from registry_world import Registry

SUBJECTS = ["a", "b", ":.ctx:a"]
SCHEMAS = [record_schema("A", "x"), record_schema("A", "x", optional=("y",)), record_schema("B", "x")]

actions = st.lists(
    st.one_of(
        st.tuples(st.just("register"), st.sampled_from(SUBJECTS), st.sampled_from(SCHEMAS)),
        st.tuples(st.just("delete"), st.sampled_from(SUBJECTS), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("delete subject"), st.sampled_from(SUBJECTS), st.booleans()),
        st.tuples(st.just("destroy"), st.sampled_from(SUBJECTS)),
        st.tuples(st.just("config"), st.sampled_from([None, *SUBJECTS]), st.sampled_from(["NONE", "BACKWARD"])),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


def perform(registry: Registry, action: tuple[Any, ...]) -> Registry:
    match action:
        case ("register", subject, schema):
            registry.register(subject, schema)
        case ("delete", subject, number, permanent):
            registry.apply(deletion.delete_version(registry.state, subject, number, permanent=permanent))
        case ("delete subject", subject, permanent):
            registry.apply(deletion.delete_subject(registry.state, subject, permanent=permanent))
        case ("destroy", subject):
            for permanent in (False, True):
                registry.apply(deletion.delete_subject(registry.state, subject, permanent=permanent))
        case ("config", subject, level):
            registry.apply(settings.set_config(registry.state, subject, {"compatibility": level}))
        case ("restart",):
            return registry.compacted()
    return registry


def view(registry: Registry) -> object:
    state = registry.state
    versions = {subject: state.versions(subject, deleted=True) for subject in state.subjects}
    ids = {(context, each.id) for context in state.contexts for each in state.with_id(context, 1)}
    return versions, ids, dict(state.configs), dict(state.modes), state.highest_ids()


@given(actions)
def test_ids_are_given_once_and_compaction_changes_nothing(history: list[tuple[Any, ...]]) -> None:
    registry = Registry()
    given: dict[tuple[str, int], str] = {}
    for action in history:
        try:
            registry = perform(registry, action)
        except RegistryError:
            continue
        for subject in registry.state.subjects:
            for each in registry.state.versions(subject, deleted=True):
                context = ".ctx" if subject.startswith(":.ctx:") else "."
                assert given.setdefault((context, each.id), each.schema) == each.schema
        assert view(registry.compacted()) == view(registry)
