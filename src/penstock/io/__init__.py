"""The interface to files, clock, randomness and processes; the simulator has its twin."""
