package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Future;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.DoubleDeserializer;
import org.apache.kafka.common.serialization.DoubleSerializer;
import org.apache.kafka.common.serialization.FloatDeserializer;
import org.apache.kafka.common.serialization.FloatSerializer;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.serialization.UUIDDeserializer;
import org.apache.kafka.common.serialization.UUIDSerializer;

/** Values by Kafka's own serializers and deserializers, keys being strings; the tests see every value as its text. */
final class Serializers {
    /** A type of values, and its text, which for bytes is one character each. */
    private record Format<T>(
        Serializer<T> serializer, Deserializer<T> deserializer, Function<String, T> parse, Function<T, String> print) {
    }

    private static final Map<String, Format<?>> FORMATS = Map.of(
        "String", new Format<>(new StringSerializer(), new StringDeserializer(), text -> text, text -> text),
        "Integer", new Format<>(new IntegerSerializer(), new IntegerDeserializer(), Integer::valueOf, Object::toString),
        "Long", new Format<>(new LongSerializer(), new LongDeserializer(), Long::valueOf, Object::toString),
        "Float", new Format<>(new FloatSerializer(), new FloatDeserializer(), Float::valueOf, Object::toString),
        "Double", new Format<>(new DoubleSerializer(), new DoubleDeserializer(), Double::valueOf, Object::toString),
        "UUID", new Format<>(new UUIDSerializer(), new UUIDDeserializer(), UUID::fromString, Object::toString),
        "ByteArray", new Format<>(
            new ByteArraySerializer(),
            new ByteArrayDeserializer(),
            text -> text.getBytes(StandardCharsets.ISO_8859_1),
            bytes -> new String(bytes, StandardCharsets.ISO_8859_1)));

    private final String bootstrap;

    Serializers(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("write_as", request -> write(FORMATS.get(request.get("format").asText()), request));
        operations.put("read_as", request -> read(FORMATS.get(request.get("format").asText()), request));
    }

    /** The partitions that the default partitioner chose. */
    private <T> List<Integer> write(Format<T> format, JsonNode request) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
        List<Integer> partitions = new ArrayList<>();
        try (Producer<String, T> producer =
            new KafkaProducer<>(settings, new StringSerializer(), format.serializer)) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (JsonNode record : request.get("records")) {
                T value = record.get(1).isNull() ? null : format.parse.apply(record.get(1).asText());
                answers.add(producer.send(
                    new ProducerRecord<>(request.get("topic").asText(), record.get(0).asText(), value)));
            }
            producer.flush();
            for (Future<RecordMetadata> answer : answers) {
                partitions.add(answer.get().partition());
            }
        }
        return partitions;
    }

    /** So many keys and values from the beginning of a topic's first partition, or what has come of them in time. */
    private <T> List<List<String>> read(Format<T> format, JsonNode request) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false);
        List<TopicPartition> partition = List.of(new TopicPartition(request.get("topic").asText(), 0));
        List<List<String>> records = new ArrayList<>();
        Consumer<String, T> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), format.deserializer);
        try {
            consumer.assign(partition);
            consumer.seekToBeginning(partition);
            int count = request.get("count").asInt();
            long deadline = System.nanoTime() + request.get("timeoutMs").asLong() * 1_000_000;
            while (records.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> records.add(Arrays.asList(
                    record.key(), record.value() == null ? null : format.print.apply(record.value()))));
            }
        } finally {
            consumer.close(CloseOptions.timeout(Duration.ZERO));
        }
        return records;
    }
}
