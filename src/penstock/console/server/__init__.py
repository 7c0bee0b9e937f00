"""HTTP: routes, sessions, streams, changes. The only package that knows requests and responses."""
