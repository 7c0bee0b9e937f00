"""Simulated clusters under faults: the real code on a simulated disk, loop, network and clock."""
