"""The server: a node in the role of broker, of controller, or of both."""
