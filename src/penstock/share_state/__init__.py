"""The share coordinator, pure: the persisted state of the share partitions in one partition of `__share_group_state`.

key       the name of a share partition: group, topic id, partition
batches   the merge of state batches
state     the state of one share partition, and its records
shard     requests in, decisions out (see `coordinator/decision.py`)
"""
