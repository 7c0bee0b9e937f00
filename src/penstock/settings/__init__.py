"""Settings of nodes, topics, groups and client metrics, under Kafka's names."""
