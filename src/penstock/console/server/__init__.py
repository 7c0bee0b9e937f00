"""HTTP: routes, sessions, streams, changes. The only room that knows requests and responses."""
