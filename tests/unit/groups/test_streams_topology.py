"""The numbers of partitions of the topics between subtopologies."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.groups.streams_topology import configure
from penstock.groups.topics import NoTopics
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.streams_group_records import StreamsGroupTopologyValue
from penstock.protocol.messages.streams_structs import Subtopology, TopicInfo
from property_examples import examples

PARTITIONS = {"one": 1, "three": 3}


class Topics(NoTopics):
    def partition_count(self, name: str) -> int:
        return PARTITIONS.get(name, 0)


def decided(subtopologies: list[Subtopology]) -> dict[str, int]:
    return dict(configure(StreamsGroupTopologyValue(subtopologies=subtopologies), Topics()).partitions)


def round_by_round(subtopologies: list[Subtopology]) -> dict[str, int] | None:
    """As Kafka does: all subtopologies in each round, with what the rounds before have decided."""
    known = dict(PARTITIONS)
    for each in subtopologies:
        known.update({topic.name: topic.partitions for topic in each.repartition_source_topics if topic.partitions})
    unknown = {sink for each in subtopologies for sink in each.repartition_sink_topics} - known.keys()
    while unknown:
        found: dict[str, int] = {}
        for each in subtopologies:
            inputs = [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
            widest = max(known.get(topic, 0) for topic in inputs)
            for sink in unknown.intersection(each.repartition_sink_topics) if widest else ():
                found[sink] = max(widest, found.get(sink, 0))
        if not found:
            return None
        known.update(found)
        unknown -= found.keys()
    read = {topic.name for each in subtopologies for topic in each.repartition_source_topics}
    if read - known.keys():
        return None
    return {topic: count for topic, count in known.items() if topic not in PARTITIONS}


between = st.sampled_from("abcdef")
parts = st.tuples(
    st.sets(st.sampled_from(sorted(PARTITIONS)), max_size=2),
    st.dictionaries(between, st.sampled_from([0, 0, 0, 2]), max_size=3),
    st.sets(between, max_size=3),
).filter(lambda part: bool(part[0] or part[1]))


@given(st.lists(parts, min_size=1, max_size=6))
@settings(max_examples=examples(300))
def test_partitions_are_counted_as_in_rounds(
    some: list[tuple[set[str], dict[str, int], set[str]]],
) -> None:
    subtopologies = [
        Subtopology(
            subtopology_id=str(number),
            source_topics=sorted(sources),
            repartition_source_topics=[TopicInfo(name=name, partitions=count) for name, count in reads.items()],
            repartition_sink_topics=sorted(writes),
        )
        for number, (sources, reads, writes) in enumerate(some)
    ]
    expected = round_by_round(subtopologies)
    if expected is None:
        with pytest.raises(KafkaError) as refused:
            decided(subtopologies)
        assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    else:
        assert decided(subtopologies) == expected


def test_a_long_chain_is_counted_in_one_pass() -> None:
    """It comes in one request, of 200 kB here. Rounds over all subtopologies took a minute."""
    length = 5000
    chain = [
        Subtopology(
            subtopology_id=str(number),
            repartition_source_topics=[TopicInfo(name=f"r{number + 1}")],
            repartition_sink_topics=[f"r{number}"],
        )
        for number in range(length)
    ]
    chain.append(Subtopology(subtopology_id="last", source_topics=["three"], repartition_sink_topics=[f"r{length}"]))
    began = time.process_time()
    assert decided(chain) == {f"r{number}": 3 for number in range(length + 1)}
    assert time.process_time() - began < 2
