"""The topology of a streams group, and the topics it needs.

A topology consists of subtopologies. Each reads *source topics* of the user and *repartition topics* that other
subtopologies write, and keeps its state in *changelog topics*. The broker creates repartition and changelog topics, so
it decides their numbers of partitions:

- A repartition topic has as many as its topology says; otherwise as many as the largest input of the subtopologies that
  write it. Topics of a copartition group must have the same number: that of the user's topics among them.
- A changelog topic has one for each task of its subtopology, which has as many tasks as the largest of its inputs.

`configure` returns what follows from the topics that exist now: tasks, topics to create, and what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.groups.topics import TopicsView
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from penstock.protocol.messages.streams_group_heartbeat import Topology
from penstock.protocol.messages.streams_group_records import StreamsGroupTopologyValue
from penstock.protocol.messages.streams_structs import CopartitionGroup, Subtopology, TopicInfo

_NAMED_MAX: Final = 3
DEFAULT_REPLICATION: Final = -1


class StatusCode(IntEnum):
    """What an answer says about the group, numbered as on the wire."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Problem(NamedTuple):
    code: StatusCode
    detail: str


class ConfiguredSubtopology(NamedTuple):
    tasks: int
    # The user's topics and the repartition topics that it reads.
    inputs: tuple[str, ...]
    is_stateful: bool


class ConfiguredTopology(NamedTuple):
    # None if the tasks cannot be counted.
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    # The numbers of partitions of internal topics.
    partitions: Mapping[str, int]
    missing: tuple[CreatableTopic, ...] = ()
    problem: Problem | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Misfit(Exception):
    """Topics do not fit the topology."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.problem = Problem(code, detail)


def check_topology(topology: Topology) -> None:
    """Raise KafkaError if a client's topology contradicts itself."""
    if topology.epoch < 0:
        raise _invalid("Topology epoch must be non-negative.")
    names = [each.subtopology_id for each in topology.subtopologies]
    if len(set(names)) < len(names):
        raise _invalid("A subtopology id occurs twice.")
    for each in topology.subtopologies:
        if each.source_topic_regex:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")
        for changelog in each.state_changelog_topics:
            if changelog.partitions != 0:
                raise _invalid(
                    f"Changelog topic {changelog.name} must have an undefined partition count, but it is set to "
                    f"{changelog.partitions}."
                )
        if any(topic.partitions < 0 for topic in each.repartition_source_topics):
            raise _invalid(f"A repartition topic of subtopology {each.subtopology_id} has a negative partition count.")
        if not each.source_topics and not each.repartition_source_topics:
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        for group in each.copartition_groups:
            _check_indexes(group.source_topics, each.source_topics)
            _check_indexes(group.repartition_source_topics, each.repartition_source_topics)


def _check_indexes(indexes: Iterable[int], into: Sequence[object]) -> None:
    if any(not 0 <= index < len(into) for index in indexes):
        raise _invalid("A copartition group names a topic that its subtopology does not have.")


def stored_form(topology: Topology) -> StreamsGroupTopologyValue:
    """Return the record of a client's topology; equal for topologies that differ only in their order."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch, subtopologies=sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
    )


def required_topics(topology: StreamsGroupTopologyValue) -> set[str]:
    return {topic for each in topology.subtopologies for topic in (*_inputs(each), *_changelogs(each))}


def configure(topology: StreamsGroupTopologyValue, topics: TopicsView) -> ConfiguredTopology:
    """Compare a topology with the topics that exist; raise KafkaError if no topics could ever fit it."""
    try:
        _check_sources(topology.subtopologies, topics)
        decided = _decide(topology.subtopologies, topics)
        missing = _missing(topology.subtopologies, decided, topics)
    except _Misfit as misfit:
        return ConfiguredTopology(None, {}, (), misfit.problem)
    subtopologies = {
        each.subtopology_id: ConfiguredSubtopology(
            max(_count(topic, decided, topics) for topic in _inputs(each)),
            _inputs(each),
            bool(each.state_changelog_topics),
        )
        for each in topology.subtopologies
    }
    problem = None
    if missing:
        names = _summary([topic.name for topic in missing])
        problem = Problem(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(subtopologies, decided, tuple(missing), problem)


# -- numbers of partitions -------------------------------------------------------------------------------------------


def _check_sources(subtopologies: Iterable[Subtopology], topics: TopicsView) -> None:
    missing = {topic for each in subtopologies for topic in each.source_topics if not topics.partition_count(topic)}
    if missing:
        raise _Misfit(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_summary(sorted(missing))} are missing.")


def _decide(subtopologies: Sequence[Subtopology], topics: TopicsView) -> dict[str, int]:
    """Return the numbers of partitions of all internal topics."""
    decided = _repartition_counts(subtopologies, topics)
    fixed = {topic.name for each in subtopologies for topic in each.repartition_source_topics if topic.partitions}
    for each in subtopologies:
        for group in each.copartition_groups:
            decided.update(_copartition_count(each, group, fixed, decided, topics))
    for each in subtopologies:
        tasks = max(_count(topic, decided, topics) for topic in _inputs(each))
        decided.update(dict.fromkeys(_changelogs(each), tasks))
    return decided


def _repartition_counts(subtopologies: Sequence[Subtopology], topics: TopicsView) -> dict[str, int]:
    decided = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    unknown = {sink for each in subtopologies for sink in each.repartition_sink_topics} - decided.keys()
    readers: dict[str, list[int]] = {}
    for number, each in enumerate(subtopologies):
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(number)
    # Round by round, as Kafka does. A subtopology decides its sinks in the first round that knows one of its inputs, so
    # after the first round only those are looked at that read what the round before has found.
    waiting = set(range(len(subtopologies)))
    due = waiting.copy()
    while unknown:
        found: dict[str, int] = {}
        for number in due:
            each = subtopologies[number]
            inputs = [topics.partition_count(topic) for topic in each.source_topics]
            inputs += [decided.get(topic.name, 0) for topic in each.repartition_source_topics]
            widest = max(inputs, default=0)
            if not widest:
                continue
            waiting.discard(number)
            for sink in unknown.intersection(each.repartition_sink_topics):
                found[sink] = max(widest, found.get(sink, 0))
        if not found:
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                "that cannot be resolved."
            )
        decided.update(found)
        unknown.difference_update(found)
        due = waiting.intersection(number for sink in found for number in readers.get(sink, ()))
    if any(topic.name not in decided for each in subtopologies for topic in each.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
    return decided


def _copartition_count(
    subtopology: Subtopology,
    group: CopartitionGroup,
    fixed: set[str],
    decided: Mapping[str, int],
    topics: TopicsView,
) -> dict[str, int]:
    """Return the number of partitions that the repartition topics of a copartition group must have."""
    own = {subtopology.source_topics[index] for index in group.source_topics}
    between = {subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics} - own
    leading = own or between & fixed
    counts = {topic: _count(topic, decided, topics) for topic in sorted(leading or between)}
    if leading and len(set(counts.values())) > 1:
        shown = ", ".join(f"{topic}={count}" for topic, count in counts.items())
        raise _Misfit(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{shown}}}]",
        )
    wanted = max(counts.values(), default=0)
    for topic in sorted(between & fixed):
        if decided[topic] != wanted:
            raise _Misfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{decided[topic]}] of repartition topic [{topic}] doesn't match number of "
                f"partitions [{wanted}] of the source topic.",
            )
    return dict.fromkeys(between, wanted)


def _missing(
    subtopologies: Iterable[Subtopology], decided: Mapping[str, int], topics: TopicsView
) -> list[CreatableTopic]:
    found = []
    infos = {
        info.name: info
        for each in subtopologies
        for info in (*each.repartition_source_topics, *each.state_changelog_topics)
    }
    for name, info in sorted(infos.items()):
        count = topics.partition_count(name)
        if not count:
            found.append(_creatable(info, decided[name]))
        elif count != decided[name]:
            raise _Misfit(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {decided[name]}, found {count}",
            )
    return found


def _creatable(info: TopicInfo, partitions: int) -> CreatableTopic:
    return CreatableTopic(
        name=info.name,
        num_partitions=partitions,
        replication_factor=info.replication_factor or DEFAULT_REPLICATION,
        configs=[CreatableTopicConfig(name=each.key, value=each.value) for each in info.topic_configs],
    )


def _count(topic: str, decided: Mapping[str, int], topics: TopicsView) -> int:
    return topics.partition_count(topic) or decided[topic]


def _inputs(subtopology: Subtopology) -> tuple[str, ...]:
    return (*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics))


def _changelogs(subtopology: Subtopology) -> list[str]:
    return [topic.name for topic in subtopology.state_changelog_topics]


def _summary(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {rest} additional topics" if rest > 0 else "")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)
