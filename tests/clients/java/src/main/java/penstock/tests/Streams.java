package penstock.tests;

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * An application of Kafka Streams: words counted in windows, and a join of two streams. It runs until its input ends,
 * and says on a line of its own in which state it is. Arguments: bootstrap, application, then settings as name=value.
 */
public final class Streams {
    private static final Duration WINDOW = Duration.ofSeconds(10);
    // Nothing is ever late: records may come in any order.
    private static final Duration GRACE = Duration.ofDays(1);

    private Streams() {
    }

    public static void main(String[] arguments) throws Exception {
        String application = arguments[1];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", application);
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", "1000");
        settings.put("commit.interval.ms", "100");
        settings.put("dsl.store.suppliers.class", "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
        for (String setting : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            String[] parts = setting.split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        try (KafkaStreams streams = new KafkaStreams(topology(application).build(), settings)) {
            streams.setStateListener((now, before) -> System.out.println("state " + now));
            streams.setUncaughtExceptionHandler(failure -> {
                failure.printStackTrace();
                return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
            });
            streams.start();
            while (System.in.read() >= 0) {
                // Whoever started it closes the input to end it.
            }
        }
    }

    private static StreamsBuilder topology(String application) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(application + "-lines");
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
            .count()
            .toStream((window, count) -> window.key() + "@" + window.window().start())
            .mapValues(String::valueOf)
            .to(application + "-counts");
        KStream<String, String> orders = builder.stream(application + "-orders");
        KStream<String, String> payments = builder.stream(application + "-payments");
        orders.join(payments, (order, payment) -> order + "/" + payment, JoinWindows.ofTimeDifferenceAndGrace(WINDOW, GRACE))
            .to(application + "-paid");
        return builder;
    }
}
