"""The metadata quorum: its voters, its leader, and what must be on disk before a node acts as either."""
