"""Error codes, ids and names that all packages share."""
