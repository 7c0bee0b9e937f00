"""Delivery to share groups (KIP-932) as pure state machines: what the leader of a partition decides for each group.

`share_partition.py` is the entry point: one `SharePartition` for each group and partition, in memory on the partition's
leader. It gives records to members for a limited time and takes their acknowledgements. `in_flight.py` holds the states
of the records between the share partition's start and end offset, `acquiring.py` chooses the records for a fetch, and
`aborted.py` finds those of aborted transactions. `sessions.py` is the broker's cache of share sessions.

The caller provides the time, reads the log, and persists what the core asks for (`states.Write`) with the share
coordinator.

Differences from Kafka:

- States are kept for ranges of offsets, which are split where states differ. Kafka keeps them for batches, and for each
  offset of a batch once they differ.
- Offsets below the log start are forgotten at once, even if a member holds them: acknowledgements are ignored.
- If a lock ends while an acknowledgement is being persisted and the write then fails, the release is persisted, too.
- Offsets that compaction has removed count as delivered, so that the lag does not contain them.
"""
