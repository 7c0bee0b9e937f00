"""Every message, declared once: one module an API, one class a message or struct."""
