"""All protocol messages, each declared once: one module per API, one class per message or struct."""
