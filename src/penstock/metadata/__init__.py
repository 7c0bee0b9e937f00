"""The cluster's metadata: one immutable image, built by replaying the records of `__cluster_metadata`."""
