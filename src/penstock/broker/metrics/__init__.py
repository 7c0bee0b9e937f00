"""What a node counts, and how it tells: a Prometheus endpoint.

Two kinds of numbers. What happens on the hot path is counted where it happens, as plain integers beside what they count
(`Replica.bytes_in`, `Latency.counts`). Everything else is looked up when somebody asks: `collecting` walks the node's
state, in slices, so that a scrape never holds the event loop for long.

    families      every metric, declared once; docs/metrics.md is made of it
    counters      what is counted as it happens, and belongs to nothing else
    loop_lag      how late the event loop is
    of_brokers    topics, replicas, connections          | generators of families and their samples,
    node_metrics      requests, quorum, process              | from the state of a node
    coordinator_metrics  groups, their lag, transactions     |
    exposition    families and samples as text
    endpoint      HTTP, on the node's own loop
"""
