package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;

/** What consoles and operators ask: the cluster, its log directories, quorum, features, producers, all kinds of offset. */
final class Inspection {
    private final Admin admin;

    Inspection(Admin admin) {
        this.admin = admin;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("cluster", request -> cluster());
        operations.put("log_dirs", request -> logDirs(request.get("broker").asInt()));
        operations.put("move_replica", this::moveReplica);
        operations.put("replica_log_dir", this::replicaLogDir);
        operations.put("producers", this::producers);
        operations.put("describe_topic", this::describeTopic);
        operations.put("features", request -> features());
        operations.put("quorum", request -> quorum());
        operations.put("config_resources", this::configResources);
        operations.put("broker_configs", this::brokerConfigs);
        operations.put("change_config", this::changeConfig);
        operations.put("offset", this::offset);
    }

    private Object cluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        List<Object> brokers = new ArrayList<>();
        for (Node node : cluster.nodes().get()) {
            brokers.add(List.of(node.id(), node.host() + ":" + node.port()));
        }
        return Map.of(
            "clusterId", cluster.clusterId().get(), "controller", cluster.controller().get().id(), "brokers", brokers);
    }

    private Object logDirs(int broker) throws Exception {
        Map<String, Object> directories = new HashMap<>();
        for (Map.Entry<String, LogDirDescription> each :
            admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker).entrySet()) {
            Map<String, Long> sizes = new HashMap<>();
            each.getValue().replicaInfos().forEach((partition, info) -> sizes.put(partition.toString(), info.size()));
            directories.put(each.getKey(), Map.of(
                "sizes", sizes,
                "total", each.getValue().totalBytes().orElse(-1),
                "usable", each.getValue().usableBytes().orElse(-1)));
        }
        return directories;
    }

    private static TopicPartitionReplica replica(JsonNode request) {
        return new TopicPartitionReplica(
            request.get("topic").asText(), request.get("partition").asInt(), request.get("broker").asInt());
    }

    /** Null, or the name of the exception that the broker answers with. */
    private Object moveReplica(JsonNode request) throws Exception {
        try {
            admin.alterReplicaLogDirs(Map.of(replica(request), request.get("directory").asText())).all().get();
            return null;
        } catch (ExecutionException refused) {
            return refused.getCause().getClass().getSimpleName();
        }
    }

    /** Where a replica is, where it is going, and how far the copy is behind. */
    private Object replicaLogDir(JsonNode request) throws Exception {
        var info = admin.describeReplicaLogDirs(List.of(replica(request))).all().get().get(replica(request));
        return Arrays.asList(
            info.getCurrentReplicaLogDir(), info.getFutureReplicaLogDir(), info.getFutureReplicaOffsetLag());
    }

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private Object producers(JsonNode request) throws Exception {
        List<Object> producers = new ArrayList<>();
        TopicPartition partition = partition(request);
        for (ProducerState state :
            admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers()) {
            producers.add(Map.of(
                "id", state.producerId(),
                "epoch", state.producerEpoch(),
                "lastSequence", state.lastSequence(),
                "lastTimestamp", state.lastTimestamp(),
                "coordinatorEpoch", state.coordinatorEpoch().orElse(-1),
                "transactionStart", state.currentTransactionStartOffset().orElse(-1)));
        }
        return producers;
    }

    /** DescribeTopicPartitions, a few partitions an answer, so that the cursor is used. */
    private Object describeTopic(JsonNode request) throws Exception {
        String name = request.get("topic").asText();
        DescribeTopicsOptions options = new DescribeTopicsOptions().partitionSizeLimitPerResponse(2);
        TopicDescription topic = admin.describeTopics(List.of(name), options).allTopicNames().get().get(name);
        List<Object> partitions = new ArrayList<>();
        topic.partitions().forEach(each -> partitions.add(Map.of(
            "partition", each.partition(),
            "leader", each.leader().id(),
            "replicas", each.replicas().stream().map(Node::id).toList(),
            "isr", each.isr().stream().map(Node::id).toList(),
            "elr", each.elr().stream().map(Node::id).toList(),
            "lastKnownElr", each.lastKnownElr().stream().map(Node::id).toList())));
        return Map.of(
            "name", topic.name(),
            "id", topic.topicId().toString(),
            "internal", topic.isInternal(),
            "partitions", partitions);
    }

    private Object features() throws Exception {
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
        Map<String, Object> finalized = new HashMap<>();
        features.finalizedFeatures().forEach((name, range) -> finalized.put(name, range.maxVersionLevel()));
        Map<String, Object> supported = new HashMap<>();
        features.supportedFeatures()
            .forEach((name, range) -> supported.put(name, List.of(range.minVersion(), range.maxVersion())));
        return Map.of(
            "finalized", finalized,
            "supported", supported,
            "epoch", features.finalizedFeaturesEpoch().orElse(-1L));
    }

    private Object quorum() throws Exception {
        QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
        List<Object> voters = new ArrayList<>();
        for (QuorumInfo.ReplicaState voter : quorum.voters()) {
            voters.add(Map.of("id", voter.replicaId(), "endOffset", voter.logEndOffset()));
        }
        return Map.of(
            "leader", quorum.leaderId(),
            "epoch", quorum.leaderEpoch(),
            "highWatermark", quorum.highWatermark(),
            "voters", voters,
            "observers", quorum.observers().size());
    }

    private Object configResources(JsonNode request) throws Exception {
        ConfigResource.Type type = ConfigResource.Type.valueOf(request.get("type").asText());
        return admin.listConfigResources(Set.of(type), new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
            .all().get().stream().map(ConfigResource::name).toList();
    }

    private static ConfigResource resource(JsonNode request) {
        return new ConfigResource(
            ConfigResource.Type.valueOf(request.get("type").asText()), request.get("name").asText());
    }

    private Object brokerConfigs(JsonNode request) throws Exception {
        ConfigResource resource = resource(request);
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Map<String, Object> configs = new HashMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            Map<String, Object> described = new HashMap<>();
            described.put("value", entry.value());
            described.put("source", entry.source().name());
            described.put("readOnly", entry.isReadOnly());
            described.put("sensitive", entry.isSensitive());
            described.put("type", entry.type().name());
            described.put("documented", entry.documentation() != null && !entry.documentation().isEmpty());
            described.put("synonyms", entry.synonyms().stream().map(each -> each.name() + ":" + each.source()).toList());
            configs.put(entry.name(), described);
        }
        return configs;
    }

    /** Any of the four operations of an incremental change. */
    private Object changeConfig(JsonNode request) throws Exception {
        String value = request.get("value").isNull() ? null : request.get("value").asText();
        AlterConfigOp change = new AlterConfigOp(
            new ConfigEntry(request.get("key").asText(), value),
            AlterConfigOp.OpType.valueOf(request.get("change").asText()));
        return admin.incrementalAlterConfigs(Map.of(resource(request), List.of(change))).all().get();
    }

    private Object offset(JsonNode request) throws Exception {
        TopicPartition partition = partition(request);
        OffsetSpec spec = switch (request.get("spec").asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            case "earliest_local" -> OffsetSpec.earliestLocal();
            case "latest_tiered" -> OffsetSpec.latestTiered();
            default -> OffsetSpec.forTimestamp(request.get("spec").asLong());
        };
        var found = admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
        return Map.of(
            "offset", found.offset(),
            "timestamp", found.timestamp(),
            "leaderEpoch", found.leaderEpoch().orElse(-1));
    }
}
