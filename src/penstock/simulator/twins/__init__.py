"""The simulated twins of disk, event loop, network, clock, threads and processes."""
