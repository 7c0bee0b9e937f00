"""Kafka's protocol: messages, their codecs, frames, and the client's half of a connection."""
