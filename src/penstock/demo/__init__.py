"""`penstock demo`: a cluster, a fleet of trucks and a web shop that write to it, Spark pipelines that read them.

demo          the running demo: its parts, what can be done to them, its result
interactive   the demo with a display and keys; headless: the same incidents in order, without them
display       the page in the terminal
workload      topics, pipelines and the events written to the topics; `events` generates streams of events
cluster       three brokers, which can be killed and restarted; its state as its brokers report it
clients       the producer, the consumer groups, the consumer of the pipelines' output
dead_letters  poison records, dead letters and their replay
ledger        what was acknowledged and what came out, by key and sequence: pure
reports       the pipelines' results: pure
spark         installs Spark if it is missing; the process that runs the pipelines
cleanup       removes every process and file, however the demo ends
"""
