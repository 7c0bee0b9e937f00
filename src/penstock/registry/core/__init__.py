"""What a schema registry decides, without I/O.

A request that changes something is decided against the state: the result is records for the topic `_schemas` and the
answer for the client. `State.replay` alone changes the state, and sees only records that were read back from the topic,
so a restarted registry, another node of the same registry and the writer itself reach the same state.

The records have the format of Confluent's registry: a topic that it wrote can be read, and it can read ours.
"""
