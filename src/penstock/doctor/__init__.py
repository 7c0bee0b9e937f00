"""What is wrong with a cluster, and what to do about it: `penstock doctor`.

`observing` looks at a cluster over the wire and makes one `Observations` of it, in which nothing is judged. `diagnosis`
is pure: observations in, findings out, each with its cause in words and what to do (`address_checks`, `cluster_checks`,
`usage_checks`). `metrics_pages` are the metrics endpoints of brokers, where they can be reached.
"""
