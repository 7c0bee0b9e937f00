import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What bench/transactional_producers.py does with other clients, with Java's: prints records a second. */
final class TransactionalProducer {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("enable.idempotence", "true");
        properties.put("acks", "all");
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        String topic = arguments[1];
        String way = arguments[2];
        boolean transactional = way.equals("transactions");
        if (transactional) {
            properties.put("transactional.id", arguments[3]);
        }
        long startsAtMs = Long.parseLong(arguments[4]);
        double seconds = Double.parseDouble(arguments[5]);
        int records = Integer.parseInt(arguments[6]);
        byte[] value = new byte[Integer.parseInt(arguments[7])];
        int partitions = Integer.parseInt(arguments[8]);

        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            if (transactional) {
                producer.initTransactions();
            }
            Runnable write = () -> {
                if (transactional) {
                    producer.beginTransaction();
                }
                for (int number = 0; number < records; number++) {
                    producer.send(new ProducerRecord<>(topic, number % partitions, null, value));
                }
                if (transactional) {
                    producer.commitTransaction();
                } else if (way.equals("flushed")) {
                    producer.flush();
                }
            };
            do {
                write.run();
            } while (System.currentTimeMillis() < startsAtMs);
            producer.flush();
            long began = System.nanoTime();
            long written = 0;
            while (System.nanoTime() - began < seconds * 1e9) {
                write.run();
                written += records;
            }
            producer.flush();
            System.out.println(written / ((System.nanoTime() - began) / 1e9));
        }
    }
}
