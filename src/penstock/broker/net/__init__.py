"""Sockets, frames and routing: from the bytes of a connection to the handler of a request."""
