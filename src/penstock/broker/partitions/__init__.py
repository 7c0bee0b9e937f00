"""The partitions of a broker: replicas, fetchers, in-sync replicas and fetch sessions."""
