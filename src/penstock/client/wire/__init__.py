"""Our own client of Kafka's protocol, and the administration of clusters."""
