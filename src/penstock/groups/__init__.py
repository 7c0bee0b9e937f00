"""Consumer groups, pure: the classic protocol, KIP-848, committed offsets and server-side assignors."""
