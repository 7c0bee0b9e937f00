"""Pure: quotas of clients. Who they apply to, which one applies, and how long a client is throttled."""
