"""SASL: the mechanisms PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, and the authentication of a connection.

A mechanism is a pure exchange of tokens, one class for each side. `authentication` is the server's state machine of one
connection: requests in, answers and decisions out. Nothing here reads a clock, a file or a socket.
"""
