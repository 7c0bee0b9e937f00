"""Authentication at listeners with SASL: between the frames of a connection and the router."""
