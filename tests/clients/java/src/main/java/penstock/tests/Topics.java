package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Topics and their settings, by the Admin client. */
final class Topics {
    private final Admin admin;

    Topics(Admin admin) {
        this.admin = admin;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("create_topic", this::create);
        operations.put("delete_topic", request -> admin.deleteTopics(names(request)).all().get());
        operations.put("topics", request -> admin.listTopics().names().get());
        operations.put("partition_count", request -> describe(request).partitions().size());
        operations.put("topic_id", request -> describe(request).topicId().toString());
        operations.put("create_partitions", request -> {
            NewPartitions total = NewPartitions.increaseTo(request.get("total").asInt());
            return admin.createPartitions(Map.of(request.get("topic").asText(), total)).all().get();
        });
        operations.put("delete_records", request -> {
            TopicPartition partition =
                new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
            RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
            return admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
        });
        operations.put("topic_configs", this::configs);
        operations.put("alter_topic_configs", this::alterConfigs);
    }

    private static List<String> names(JsonNode request) {
        return List.of(request.get("topic").asText());
    }

    private Object create(JsonNode request) throws Exception {
        Map<String, String> configs = new HashMap<>();
        request.get("configs").fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        String name = request.get("topic").asText();
        int partitions = request.get("partitions").asInt();
        CreateTopicsResult created =
            admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs)));
        created.all().get();
        Map<String, Object> answer = new HashMap<>();
        answer.put("partitions", created.numPartitions(name).get());
        answer.put("replicas", created.replicationFactor(name).get());
        answer.put("topicId", created.topicId(name).get().toString());
        answer.put("configs", values(created.config(name).get().entries()));
        return answer;
    }

    private TopicDescription describe(JsonNode request) throws Exception {
        return admin.describeTopics(names(request)).allTopicNames().get().get(request.get("topic").asText());
    }

    private static ConfigResource resource(JsonNode request) {
        return new ConfigResource(ConfigResource.Type.TOPIC, request.get("topic").asText());
    }

    private Object configs(JsonNode request) throws Exception {
        ConfigResource resource = resource(request);
        return values(admin.describeConfigs(List.of(resource)).all().get().get(resource).entries());
    }

    private static Map<String, String> values(Iterable<ConfigEntry> entries) {
        Map<String, String> values = new HashMap<>();
        entries.forEach(entry -> values.put(entry.name(), entry.value()));
        return values;
    }

    private Object alterConfigs(JsonNode request) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        request.get("configs").fields().forEachRemaining(each -> {
            ConfigEntry entry = new ConfigEntry(each.getKey(), each.getValue().asText());
            changes.add(new AlterConfigOp(entry, AlterConfigOp.OpType.SET));
        });
        return admin.incrementalAlterConfigs(Map.of(resource(request), changes)).all().get();
    }
}
