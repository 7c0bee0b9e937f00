"""The table of APIs against what Kafka 4.4 serves."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.apis import API, NEVER, ApiKey

# Key: name, first and last version, first flexible version, listeners (b broker, c controller).
KAFKA_4_4 = """
0 Produce 3-13 9 b | 1 Fetch 4-18 12 bc | 2 ListOffsets 1-11 6 b | 3 Metadata 0-13 9 b | 8 OffsetCommit 2-10 8 b
9 OffsetFetch 1-10 6 b | 10 FindCoordinator 0-6 3 b | 11 JoinGroup 0-9 6 b | 12 Heartbeat 0-4 4 b
13 LeaveGroup 0-5 4 b | 14 SyncGroup 0-5 4 b | 15 DescribeGroups 0-6 5 b | 16 ListGroups 0-5 3 b
17 SaslHandshake 0-1 - bc | 18 ApiVersions 0-5 3 bc | 19 CreateTopics 2-7 5 bc | 20 DeleteTopics 1-6 4 bc
21 DeleteRecords 0-2 2 b | 22 InitProducerId 0-5 2 b | 23 OffsetForLeaderEpoch 2-4 4 b
24 AddPartitionsToTxn 0-5 3 b | 25 AddOffsetsToTxn 0-4 3 b | 26 EndTxn 0-5 3 b | 27 WriteTxnMarkers 1-2 1 b
28 TxnOffsetCommit 0-6 3 b | 29 DescribeAcls 1-3 2 bc | 30 CreateAcls 1-3 2 bc | 31 DeleteAcls 1-3 2 bc
32 DescribeConfigs 1-4 4 bc | 33 AlterConfigs 0-2 2 bc | 34 AlterReplicaLogDirs 1-2 2 b | 35 DescribeLogDirs 1-5 2 b
36 SaslAuthenticate 0-2 2 bc | 37 CreatePartitions 0-3 2 bc | 38 CreateDelegationToken 1-3 2 bc
39 RenewDelegationToken 1-2 2 bc | 40 ExpireDelegationToken 1-2 2 bc | 41 DescribeDelegationToken 1-3 2 bc
42 DeleteGroups 0-3 2 b | 43 ElectLeaders 0-2 2 bc
44 IncrementalAlterConfigs 0-1 1 bc | 45 AlterPartitionReassignments 0-1 0 bc
46 ListPartitionReassignments 0-0 0 bc | 47 OffsetDelete 0-0 - b | 48 DescribeClientQuotas 0-1 1 b
49 AlterClientQuotas 0-1 1 bc | 50 DescribeUserScramCredentials 0-0 0 bc | 51 AlterUserScramCredentials 0-0 0 bc
52 Vote 0-2 0 c | 53 BeginQuorumEpoch 0-1 1 c | 54 EndQuorumEpoch 0-1 1 c | 55 DescribeQuorum 0-2 0 bc
56 AlterPartition 2-3 0 c | 57 UpdateFeatures 0-2 0 bc | 58 Envelope 0-0 0 c | 59 FetchSnapshot 0-1 0 c
60 DescribeCluster 0-2 0 bc | 61 DescribeProducers 0-0 0 b | 62 BrokerRegistration 0-4 0 c
63 BrokerHeartbeat 0-2 0 c | 64 UnregisterBroker 0-0 0 bc | 65 DescribeTransactions 0-0 0 b
66 ListTransactions 0-2 0 b | 67 AllocateProducerIds 0-0 0 c | 68 ConsumerGroupHeartbeat 0-1 0 b
69 ConsumerGroupDescribe 0-1 0 b | 70 ControllerRegistration 0-0 0 c | 71 GetTelemetrySubscriptions 0-0 0 b
72 PushTelemetry 0-0 0 b | 73 AssignReplicasToDirs 0-0 0 c | 74 ListConfigResources 0-1 0 b
75 DescribeTopicPartitions 0-0 0 b | 76 ShareGroupHeartbeat 1-1 0 b | 77 ShareGroupDescribe 1-1 0 b
78 ShareFetch 1-2 0 b | 79 ShareAcknowledge 1-2 0 b | 80 AddRaftVoter 0-1 0 bc | 81 RemoveRaftVoter 0-0 0 bc
82 UpdateRaftVoter 0-0 0 c | 83 InitializeShareGroupState 0-0 0 b | 84 ReadShareGroupState 0-0 0 b
85 WriteShareGroupState 0-1 0 b | 86 DeleteShareGroupState 0-0 0 b | 87 ReadShareGroupStateSummary 0-1 0 b
88 StreamsGroupHeartbeat 0-1 0 b | 89 StreamsGroupDescribe 0-1 0 b | 90 DescribeShareGroupOffsets 0-1 0 b
91 AlterShareGroupOffsets 0-0 0 b | 92 DeleteShareGroupOffsets 0-0 0 b
93 StreamsGroupTopologyDescriptionUpdate 0-0 0 b | 94 UnregisterController 0-0 0 bc
"""


def test_the_table_is_kafkas() -> None:
    ours = {}
    for spec in API.values():
        flexible = "-" if spec.flexible_from == NEVER else str(spec.flexible_from)
        listeners = "".join(sorted(listener[0] for listener in spec.listeners))
        ours[int(spec.key)] = f"{spec.name} {spec.min_version}-{spec.max_version} {flexible} {listeners}"
    kafkas = {}
    for row in KAFKA_4_4.replace("\n", "|").split("|"):
        if row.strip():
            key, rest = row.strip().split(" ", 1)
            kafkas[int(key)] = rest
    assert ours == kafkas


def test_requests_and_responses_belong_together() -> None:
    for key, spec in API.items():
        for message, suffix in ((spec.request, "Request"), (spec.response, "Response")):
            schema = message.__schema__
            assert (schema.key, message.__name__) == (key, spec.name + suffix)
            assert schema.versions == (spec.min_version, spec.latest_version)
            assert schema.flexible.is_some == (spec.flexible_from != NEVER)
        assert ApiKey(key).name.replace("_", "").lower() == spec.name.lower()


def test_produce_is_advertised_from_0() -> None:
    lower = {spec.name for spec in API.values() if spec.advertised_min_version != spec.min_version}
    assert lower == {"Produce"}
    assert API[ApiKey.PRODUCE].advertised_min_version == 0


def test_drafts_are_not_served() -> None:
    drafts = {spec.name for spec in API.values() if spec.latest_version > spec.max_version}
    assert drafts == {"InitProducerId"}


def test_error_codes_are_kafkas() -> None:
    assert sorted(ErrorCode) == list(range(-1, 137))
    for theirs in KioErrorCode:
        ours = ErrorCode(theirs.value)
        assert (ours.name.lower(), ours.retriable) == (theirs.name, theirs.retriable)


def test_a_kafka_error_has_a_message_of_its_own_or_of_its_code() -> None:
    assert str(KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "no dots")) == "INVALID_TOPIC_EXCEPTION: no dots"
    assert KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE).message == ErrorCode.OFFSET_OUT_OF_RANGE.text
    assert all(code.text for code in ErrorCode if code is not ErrorCode.NONE)
