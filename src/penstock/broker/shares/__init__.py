"""Share groups on the leader of a partition: the share partitions it serves, their locks, and what they persist."""
