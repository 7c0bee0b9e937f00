package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, by their transactional id, and what the Admin client asks and changes of transactions. */
final class Transactions {
    private final String bootstrap;
    private final Admin admin;
    private final Members members;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    Transactions(String bootstrap, Admin admin, Members members) {
        this.bootstrap = bootstrap;
        this.admin = admin;
        this.members = members;
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("new_producer", this::newProducer);
        operations.put("begin", request -> {
            of(request).beginTransaction();
            return null;
        });
        operations.put("send", this::send);
        operations.put("send_offsets", this::sendOffsets);
        operations.put("commit_transaction", request -> {
            of(request).commitTransaction();
            return null;
        });
        operations.put("abort_transaction", request -> {
            of(request).abortTransaction();
            return null;
        });
        operations.put("transactions", this::list);
        operations.put("describe_transaction", this::describe);
        operations.put("abort_hanging", this::abort);
        operations.put("fence", request -> admin.fenceProducers(List.of(id(request))).all().get());
    }

    private static String id(JsonNode request) {
        return request.get("id").asText();
    }

    private KafkaProducer<byte[], byte[]> of(JsonNode request) {
        return producers.get(request.get("producer").asText());
    }

    /** Under a name of its own, as several may have the same transactional id. */
    private Object newProducer(JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id(request));
        settings.put("retry.backoff.ms", 20L);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.initTransactions();
        producers.put(request.get("producer").asText(), producer);
        return null;
    }

    private Object send(JsonNode request) throws Exception {
        for (JsonNode value : request.get("values")) {
            of(request).send(new ProducerRecord<>(request.get("topic").asText(), null, value.binaryValue()));
        }
        of(request).flush();
        return null;
    }

    /** The positions of a member of a group, in its own name. */
    private Object sendOffsets(JsonNode request) {
        Members.Member member = members.of(request);
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition partition : member.consumer.assignment()) {
            offsets.put(partition, new OffsetAndMetadata(member.consumer.position(partition)));
        }
        of(request).sendOffsetsToTransaction(offsets, member.consumer.groupMetadata());
        return null;
    }

    private Object list(JsonNode request) throws Exception {
        Map<String, Object> states = new HashMap<>();
        ListTransactionsOptions options = new ListTransactionsOptions();
        if (request.has("pattern")) {
            options.filterOnTransactionalIdPattern(request.get("pattern").asText());
        }
        admin.listTransactions(options).all().get()
            .forEach(each -> states.put(each.transactionalId(), each.state().toString()));
        return states;
    }

    private Object describe(JsonNode request) throws Exception {
        TransactionDescription found =
            admin.describeTransactions(List.of(id(request))).all().get().get(id(request));
        List<Object> partitions = new ArrayList<>();
        found.topicPartitions().forEach(each -> partitions.add(List.of(each.topic(), each.partition())));
        return Map.of(
            "state", found.state().toString(),
            "producerId", found.producerId(),
            "producerEpoch", found.producerEpoch(),
            "timeoutMs", found.transactionTimeoutMs(),
            "isOpen", found.transactionStartTimeMs().isPresent(),
            "partitions", partitions);
    }

    private Object abort(JsonNode request) throws Exception {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        return admin.abortTransaction(new AbortTransactionSpec(
            partition,
            request.get("producerId").asLong(),
            (short) request.get("producerEpoch").asInt(),
            request.get("coordinatorEpoch").asInt())).all().get();
    }
}
