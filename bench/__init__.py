"""Measurements of the broker, beside the floor of the machine and, where there is one, beside another Kafka.

`python -m bench` prints one table. A figure alone means little on a shared machine, so every load runs alternately
against the broker and against a *floor*: a server that moves the same bytes over the same sockets and into the same
files and knows nothing of Kafka. The ratio of the medians is what the targets are about.

Each server and each load generator is a process of its own; `bench.run` plays them in rounds, `bench.loads` says what
is measured and what is aimed at.
"""
