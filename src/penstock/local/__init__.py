"""Real nodes on this machine: their files, and how their processes start, become ready and stop.

`penstock up`, the demo and the tests all start nodes this way.
"""
