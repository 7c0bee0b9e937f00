import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The share consumers of bench/shares.py, many in one process.
 *
 * <p>Each line of the input is a load: "BOOTSTRAP TOPIC GROUP CONSUMERS WAY SECONDS". Prints "ready" when every
 * consumer has had records, and after so many seconds how many records were acknowledged, the nanoseconds that took,
 * and how many were acknowledged in all.
 */
final class ShareConsumers {
    private static final long READY_S = 120;

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            new ShareConsumers(words[0], words[1], words[2], words[4].equals("explicit"))
                .run(Integer.parseInt(words[3]), Double.parseDouble(words[5]));
        }
    }

    private final String bootstrap;
    private final String topic;
    private final String group;
    private final boolean isExplicit;
    private final LongAdder acknowledged = new LongAdder();
    private final AtomicBoolean isOver = new AtomicBoolean();

    private ShareConsumers(String bootstrap, String topic, String group, boolean isExplicit) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = group;
        this.isExplicit = isExplicit;
    }

    private void run(int count, double seconds) throws Exception {
        startAtEarliest();
        CountDownLatch served = new CountDownLatch(count);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            Thread thread = new Thread(() -> consume(served));
            thread.start();
            threads.add(thread);
        }
        if (!served.await(READY_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(served.getCount() + " of " + count + " consumers got no records");
        }
        System.out.println("ready");
        long before = acknowledged.sum();
        long began = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        long handled = acknowledged.sum() - before;
        long took = System.nanoTime() - began;
        isOver.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println(handled + " " + took + " " + acknowledged.sum());
    }

    private void startAtEarliest() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Collection<AlterConfigOp> changes = List.of(
                new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes))
                .all()
                .get();
        }
    }

    private void consume(CountDownLatch served) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("share.acknowledgement.mode", isExplicit ? "explicit" : "implicit");
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(topic));
            int previous = 0;
            while (!isOver.get()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                int count = 0;
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (isExplicit) {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                    count++;
                }
                if (isExplicit) {
                    consumer.commitSync().forEach((partition, error) -> error.ifPresent(e -> {
                        throw e;
                    }));
                    acknowledged.add(count);
                } else {
                    // This poll has acknowledged what the one before returned.
                    acknowledged.add(previous);
                    previous = count;
                }
                if (count > 0) {
                    served.countDown();
                }
            }
        }
    }
}
