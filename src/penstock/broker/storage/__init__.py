"""The log directories of a broker: which replica is where, flushes and moves."""
