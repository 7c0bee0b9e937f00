"""The `penstock` command, one module per group of commands."""
