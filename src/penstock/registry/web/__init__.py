"""The HTTP side: routes, bodies, authentication, and forwarding to the writer."""
