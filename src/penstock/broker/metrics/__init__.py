"""The metrics of a node, and the Prometheus endpoint that serves them.

There are two kinds of numbers. Events on the hot path are counted where they happen, as plain integers beside what they
count (`Replica.bytes_in`, `Latency.counts`); plain produce requests are counted once per turn of the loop. Everything
else is looked up when a scrape arrives: `collecting` walks the node's state, in slices of 3 ms, so that a scrape never
holds the event loop for long. For example, messages in is the growth of a log while it is led, and log sizes come from
the logs.

    families             every metric, declared once; docs/metrics.md is generated from it
    counters             numbers counted as they happen that belong to no other object
    loop_lag             how late the event loop runs
    broker_metrics       topics, replicas, connections      | generators of families and their samples,
    node_metrics         requests, quorum, process          | from the state of a node
    coordinator_metrics  groups, their lag, transactions    |
    share_metrics        share groups: lag, deliveries      |
    quota_metrics        quotas of clients                  |
    client_metrics       what clients report of themselves  |
    exposition           families and samples as text
    endpoint             HTTP, on the node's own loop
"""
