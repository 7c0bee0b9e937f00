"""`penstock doctor`: finds problems of a cluster, their causes and remedies.

`observing` looks at a cluster over the wire and returns one `Observations`, without judgement. `diagnosis` is pure:
observations in, findings out, each with its cause and remedy (`address_checks`, `cluster_checks`, `usage_checks`).
`metrics_pages` reads the metrics endpoints of brokers, where they can be reached.
"""
