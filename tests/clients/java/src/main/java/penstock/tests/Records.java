package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing, and consuming assigned partitions without a group. */
final class Records {
    private final String bootstrap;
    private final Map<Integer, Reader> readers = new HashMap<>();
    private final Map<String, Producer<byte[], byte[]>> pipelines = new HashMap<>();

    Records(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("produce", this::produce);
        operations.put("new_pipelining_producer", this::newPipeliningProducer);
        operations.put("pipeline", this::pipeline);
        operations.put("open", this::open);
        operations.put("take", request -> readers.get(request.get("reader").asInt()).take(request));
        operations.put("close", request -> {
            // At once: it would wait for a fetch that is waiting at the broker.
            readers.get(request.get("reader").asInt()).consumer.close(CloseOptions.timeout(Duration.ZERO));
            return null;
        });
        operations.put("offsets", this::offsets);
        operations.put("offset_for_time", this::offsetForTime);
    }

    private Object produce(JsonNode request) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", request.get("codec").asText());
        settings.put("acks", request.get("acks").asText());
        settings.put("enable.idempotence", request.get("idempotent").asBoolean());
        settings.put("batch.size", request.get("batchBytes").asInt());
        settings.put("max.in.flight.requests.per.connection", 5);
        settings.put("max.request.size", 4 << 20);
        settings.put("linger.ms", 2);
        settings.put("retry.backoff.ms", 20L);
        List<Object> positions = new ArrayList<>();
        try (Producer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (JsonNode record : request.get("records")) {
                answers.add(producer.send(toProducerRecord(request.get("topic").asText(), record)));
            }
            producer.flush();
            for (Future<RecordMetadata> answer : answers) {
                positions.add(List.of(answer.get().partition(), answer.get().offset()));
            }
        }
        return positions;
    }

    /** An idempotent producer that lives on, with a batch for each record and five requests in flight. */
    private Object newPipeliningProducer(JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", true);
        settings.put("batch.size", 1);
        settings.put("max.in.flight.requests.per.connection", 5);
        settings.put("delivery.timeout.ms", 300_000);
        pipelines.put(
            request.get("producer").asText(),
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()));
        return null;
    }

    /** Send all values without waiting in between; return when they are acknowledged. */
    private Object pipeline(JsonNode request) throws Exception {
        Producer<byte[], byte[]> producer = pipelines.get(request.get("producer").asText());
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        for (JsonNode value : request.get("values")) {
            answers.add(producer.send(new ProducerRecord<>(request.get("topic").asText(), bytes(value))));
        }
        for (Future<RecordMetadata> answer : answers) {
            answer.get();
        }
        return null;
    }

    private static ProducerRecord<byte[], byte[]> toProducerRecord(String topic, JsonNode record) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Integer partition = record.get("partition").isNull() ? null : record.get("partition").asInt();
        Long timestamp = record.get("timestamp").isNull() ? null : record.get("timestamp").asLong();
        return new ProducerRecord<>(
            topic, partition, timestamp, bytes(record.get("key")), bytes(record.get("value")), headers);
    }

    private static byte[] bytes(JsonNode content) throws IOException {
        return content.isNull() ? null : content.binaryValue();
    }

    private Consumer<byte[], byte[]> consumer(int waitMs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", waitMs);
        settings.put("request.timeout.ms", 60_000);
        settings.put("retry.backoff.ms", 20L);
        settings.put("max.poll.records", 10_000);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Object open(JsonNode request) {
        Consumer<byte[], byte[]> consumer = consumer(request.get("waitMs").asInt());
        Map<TopicPartition, Long> starts = new HashMap<>();
        for (JsonNode start : request.get("starts")) {
            starts.put(new TopicPartition(request.get("topic").asText(), start.get(0).asInt()), start.get(1).asLong());
        }
        consumer.assign(starts.keySet());
        starts.forEach(consumer::seek);
        int number = readers.size();
        readers.put(number, new Reader(consumer));
        return number;
    }

    private static final class Reader {
        private final Consumer<byte[], byte[]> consumer;
        private final Deque<Object> ready = new ArrayDeque<>();

        Reader(Consumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        List<Object> take(JsonNode request) {
            int count = request.get("count").asInt();
            long deadline = System.nanoTime() + request.get("timeoutMs").asLong() * 1_000_000;
            for (long left = deadline - System.nanoTime();
                left > 0 && ready.size() < count;
                left = deadline - System.nanoTime()) {
                consumer.poll(Duration.ofNanos(left)).forEach(record -> ready.add(toJson(record)));
            }
            List<Object> taken = new ArrayList<>();
            while (taken.size() < count && !ready.isEmpty()) {
                taken.add(ready.poll());
            }
            return taken;
        }

        private static Map<String, Object> toJson(ConsumerRecord<byte[], byte[]> record) {
            List<Object> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                List<Object> pair = new ArrayList<>();
                pair.add(header.key());
                pair.add(header.value());
                headers.add(pair);
            }
            Map<String, Object> json = new HashMap<>();
            json.put("key", record.key());
            json.put("value", record.value());
            json.put("headers", headers);
            json.put("timestamp", record.timestamp());
            json.put("partition", record.partition());
            json.put("offset", record.offset());
            return json;
        }
    }

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
    }

    private Object offsets(JsonNode request) {
        TopicPartition partition = partition(request);
        try (Consumer<byte[], byte[]> consumer = consumer(500)) {
            return Map.of(
                "earliest", consumer.beginningOffsets(List.of(partition)).get(partition),
                "latest", consumer.endOffsets(List.of(partition)).get(partition));
        }
    }

    private Object offsetForTime(JsonNode request) {
        TopicPartition partition = partition(request);
        try (Consumer<byte[], byte[]> consumer = consumer(500)) {
            OffsetAndTimestamp found =
                consumer.offsetsForTimes(Map.of(partition, request.get("timestamp").asLong())).get(partition);
            return found == null ? null : found.offset();
        }
    }
}
