"""The consumer of share groups, on our own protocol client.

acknowledgements  what a session says about records, as ranges of offsets
session           the share session with one broker: which requests, in which epoch
membership        heartbeats, in a thread of their own
fetching          sessions with all leaders: records in, acknowledgements out
consumer          `ShareConsumer`, and its twin for asyncio
"""
