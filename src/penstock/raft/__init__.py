"""The metadata quorum: who votes, who leads, and what must be on disk before either is said."""
