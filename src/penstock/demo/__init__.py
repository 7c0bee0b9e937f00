"""The demo: a cluster, a fleet of trucks and a web shop that write to it, pipelines on Spark that read them.

streams     what flows: topics in, topics out, the pipelines between them
story       the events themselves
ledger      what was acknowledged and what came out, by key and sequence: pure
cluster     three brokers, which can be killed and brought back
load        the producer; readers: the consumer groups; letters: dead letters and their replay
observer    leaders, in-sync replicas and lag, as the cluster tells them
spark       Spark installed if need be, and the process that runs the pipelines (`runner` is that process)
show        all of it together; display and keys are its face
janitor     whatever happens to the demo, nothing of it stays behind
"""
