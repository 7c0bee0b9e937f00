"""What pages say, from what was observed: pure. No module here does I/O, and none makes HTML."""
