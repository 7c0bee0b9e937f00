import java.nio.file.Path;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.Node;

/** One node of Elasticsearch, without its launcher: a home directory, then settings as `name=value`. */
public class ElasticsearchServer {
    public static void main(String[] arguments) throws Exception {
        Path home = Path.of(arguments[0]);
        Settings.Builder given = Settings.builder().put("path.home", home.toString());
        for (int i = 1; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            given.put(setting[0], setting[1]);
        }
        Settings settings = given.build();
        LogConfigurator.configureWithoutConfig(settings);
        new Node(new Environment(settings, home.resolve("config"))).start();
        Thread.currentThread().join();
    }
}
