package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of consumer groups, by number; polled when told to, each for a moment. */
final class Members {
    private final String bootstrap;
    private final Map<Integer, Member> members = new LinkedHashMap<>();
    private int joined;

    Members(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("join", this::join);
        operations.put("poll", request -> of(request).poll());
        operations.put("commit", request -> of(request).commit());
        operations.put("assignment", request -> indexes(of(request).consumer.assignment()));
        operations.put("assigned_topics", request -> topics(of(request).consumer.assignment()));
        operations.put("given", request -> of(request).given);
        operations.put("leave", request -> leave(request, CloseOptions.GroupMembershipOperation.DEFAULT));
        // As one that is killed: it says nothing to anybody.
        operations.put("vanish", request -> leave(request, CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP));
    }

    Member of(JsonNode request) {
        return members.get(request.get("member").asInt());
    }

    private Object join(JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        settings.put("metadata.max.age.ms", 1000);
        settings.put("retry.backoff.ms", 20L);
        settings.put("fetch.max.wait.ms", 100);
        settings.put("group.id", request.get("group").asText());
        request.get("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
        members.put(joined, new Member(settings, request));
        return joined++;
    }

    private Object leave(JsonNode request, CloseOptions.GroupMembershipOperation how) {
        Member member = members.remove(request.get("member").asInt());
        member.consumer.close(CloseOptions.groupMembershipOperation(how).withTimeout(Duration.ofSeconds(10)));
        return null;
    }

    private static List<Integer> indexes(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::partition).toList();
    }

    private static List<String> topics(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::topic).sorted().toList();
    }

    static final class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        /** Each time, the generation (or member epoch) and all partitions it has from then on. */
        final List<Object> given = new ArrayList<>();

        Member(Map<String, Object> settings, JsonNode request) {
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            if (request.has("pattern") && "consumer".equals(settings.get("group.protocol"))) {
                consumer.subscribe(new SubscriptionPattern(request.get("pattern").asText()), this);
            } else if (request.has("pattern")) {
                consumer.subscribe(Pattern.compile(request.get("pattern").asText()), this);
            } else {
                consumer.subscribe(List.of(request.get("topic").asText()), this);
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
            ConsumerGroupMetadata metadata = consumer.groupMetadata();
            given.add(List.of(metadata.generationId(), indexes(consumer.assignment())));
        }

        List<Object> poll() {
            List<Object> read = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                read.add(List.of(record.partition(), record.offset(), record.value()));
            }
            return read;
        }

        /** What it has read of what it still has, by partition. */
        Object commit() {
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            Map<Integer, Long> positions = new HashMap<>();
            for (TopicPartition partition : consumer.assignment()) {
                long position = consumer.position(partition);
                offsets.put(partition, new OffsetAndMetadata(position));
                positions.put(partition.partition(), position);
            }
            consumer.commitSync(offsets);
            return positions;
        }
    }
}
