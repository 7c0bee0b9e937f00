"""The metadata quorum alone: Raft without brokers, under more faults than TCP lets through."""
