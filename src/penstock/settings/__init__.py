"""Settings: what can be configured, on a node and on a topic, by Kafka's names."""
