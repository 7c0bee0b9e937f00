"""The runtime of the coordinators: what the pure shards of groups and transactions decide is made true here."""
