"""The transaction coordinator as a pure state machine: transactional ids, their producers and their transactions.

`shard.py` is the entry point: one `TransactionShard` per partition of `__transaction_state`, with a handler for each
API. The decisions of the handlers are in modules of their own: `initializing` (InitProducerId), `joining`
(AddPartitionsToTxn, AddOffsetsToTxn), `ending` (EndTxn), `listing` (DescribeTransactions, ListTransactions). `markers`
is the outbox of markers for partitions. `routing` splits requests that concern several shards.

Differences from Kafka:

- A producer that recovers (KIP-360) must send the pair of the open transaction, otherwise it is fenced: it must not
  abort its successor's transaction (`initializing`).
- EndTxn v5 under the previous epoch is a retry only if the last ending raised the epoch. If an older client ended the
  last transaction, a fenced producer would get its successor's pair (`ending`).
- A partition that refuses a marker because the producer is past that epoch counts as done, and the other partitions
  still get theirs. Kafka leaves such a transaction prepared (`markers`).
- `keepPreparedTxn` (KIP-939) works: the transaction continues under its own pair, the client acts under the next, and
  the longer time-out stays. Kafka 4.3 answers UNSUPPORTED_VERSION (`state`).
- Fencing and aborting are one record; PrepareEpochFence is never written (`state`).
"""
