"""Clients of Kafka's protocol: our own (`wire`), and those on librdkafka."""
