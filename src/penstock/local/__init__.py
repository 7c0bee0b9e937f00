"""Real nodes on this machine: where their files are, how their processes start, become ready and stop.

`penstock up`, the demo and the tests all start nodes this way.
"""
