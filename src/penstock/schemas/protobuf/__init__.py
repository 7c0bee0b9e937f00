"""Protobuf: .proto texts and descriptors, and the rules by which one file may follow another."""
