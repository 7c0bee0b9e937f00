"""The runtime of the coordinators: it carries out what the pure group and transaction shards decide."""
