package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Drives Java's Kafka client for the tests: one JSON request a line on stdin, one JSON answer a line on stdout.
 *
 * An answer has either a "result" or an "error": Kafka's code and message where the broker refused, a stack trace
 * ("crash") where the client itself failed.
 */
public final class Driver {
    static final ObjectMapper JSON = new ObjectMapper();

    /** One verb of the tests; what it returns is written as JSON. */
    @FunctionalInterface
    interface Operation {
        Object run(JsonNode arguments) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String bootstrap = arguments[0];
        Map<String, Operation> operations = new HashMap<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "retry.backoff.ms", 20L))) {
            new Records(bootstrap).register(operations);
            new Serializers(bootstrap).register(operations);
            new Topics(admin).register(operations);
            new Inspection(admin).register(operations);
            new Groups(admin).register(operations);
            new Tools().register(operations);
            Members members = new Members(bootstrap);
            members.register(operations);
            new Transactions(bootstrap, admin, members).register(operations);
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                answers.println(JSON.writeValueAsString(answer(operations, JSON.readTree(line))));
            }
        }
    }

    private static Map<String, Object> answer(Map<String, Operation> operations, JsonNode request) {
        Map<String, Object> answer = new HashMap<>();
        try {
            answer.put("result", operations.get(request.get("operation").asText()).run(request));
        } catch (Throwable problem) {
            answer.put("error", failure(problem));
        }
        return answer;
    }

    private static Map<String, Object> failure(Throwable problem) {
        Throwable cause = problem;
        while (cause instanceof ExecutionException || cause instanceof CompletionException
            || cause.getClass() == KafkaException.class && cause.getCause() != null) {
            cause = cause.getCause();
        }
        Errors error = Errors.forException(cause);
        if (error != Errors.UNKNOWN_SERVER_ERROR) {
            return Map.of("code", (int) error.code(), "message", String.valueOf(cause.getMessage()));
        }
        StringWriter trace = new StringWriter();
        problem.printStackTrace(new PrintWriter(trace));
        return Map.of("crash", trace.toString());
    }
}
