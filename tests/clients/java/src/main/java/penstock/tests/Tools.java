package penstock.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Kafka's own commands, run in this process: what they print, and the status with which they would have ended it. */
final class Tools {
    private static final class Exited extends RuntimeException {
        final int status;

        Exited(int status) {
            this.status = status;
        }
    }

    void register(Map<String, Driver.Operation> operations) {
        operations.put("tool", this::run);
    }

    private Object run(JsonNode request) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("arguments").forEach(each -> arguments.add(each.asText()));
        Class<?> tool = Class.forName("org.apache.kafka.tools." + request.get("name").asText());
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream printer = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(printer);
        System.setErr(printer);
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status);
        });
        Exit.setHaltProcedure((status, message) -> {
            throw new Exited(status);
        });
        int status = 0;
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Exited)) {
                throw failure;
            }
            status = ((Exited) failure.getCause()).status;
        } finally {
            Exit.resetExitProcedure();
            Exit.resetHaltProcedure();
            System.setOut(out);
            System.setErr(err);
        }
        return Map.of("status", status, "output", printed.toString(StandardCharsets.UTF_8));
    }
}
