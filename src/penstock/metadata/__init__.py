"""The cluster's metadata: one immutable image, made by replaying the records of `__cluster_metadata`."""
