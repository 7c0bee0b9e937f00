"""A node's part in the metadata: the quorum, the controller, registration and forwarding."""
