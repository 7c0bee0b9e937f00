"""What groups and transactions share: the language between a pure coordinator and its runtime. Pure."""
