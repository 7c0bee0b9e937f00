"""Moves a running cluster between Apache Kafka and Penstock: brokers and controllers of both kinds in one cluster.

The planners are pure: a description of the cluster goes in, the next steps come out (`plan`, `voters`, `check`). What
they need to continue after a pause is in the cluster itself, not in a file: replicas, voters, and the topic settings
`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas`, which name the brokers that a
partition is copied from and to. `observe` reads a cluster, `moving` carries steps out, `verify` proves that replicas
are equal before one of them is removed.
"""
