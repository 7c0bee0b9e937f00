"""Groups as pure state machines: classic protocol, KIP-848, share and streams groups, offsets, server-side assignors.

`shard.py` is the entry point. Differences from Kafka:

- The hash of a group's metadata uses another function than Kafka's (`topics.metadata_hash`): a group that moves between
  the two is assigned once more than necessary.
- A classic group whose assignments carry user data of one of the four usual assignors may move to the consumer protocol
  (`migration`): librdkafka's cooperative-sticky sends its user data with every assignment. Kafka takes it for the data
  of a custom assignor and refuses.
- A member of the consumer protocol whose group became classic while it was silent gets UNKNOWN_MEMBER_ID, and joins
  again. On Kafka's answer, GROUP_ID_NOT_FOUND, clients give up for good (`consumer_heartbeat`).
- Offsets of topics that were deleted while a coordinator was being replaced are removed by the next search for expired
  offsets (`offset_deletion`).
"""
