"""TLS: key and trust stores, contexts that are renewed while they are used, and the names in certificates."""
