"""The log of a partition: segments, indexes, recovery, retention, checkpoints and compaction."""
