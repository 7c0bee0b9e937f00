"""The transaction coordinator: transactional ids, their producers, and how their transactions end. Pure.

`shard.py` is the way in: one `TransactionShard` per partition of `__transaction_state`, with a handler for each API.
What a handler decides is in a module of its own: `initializing` (InitProducerId), `joining` (AddPartitionsToTxn,
AddOffsetsToTxn), `ending` (EndTxn), `listing` (DescribeTransactions, ListTransactions). `markers` is the outbox of
what partitions have to be told, `routing` splits requests that concern several shards.
"""
