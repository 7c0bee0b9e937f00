"""Producers and consumers on librdkafka, synchronous and asynchronous."""
