"""`penstock registry`: the REST API of Confluent's schema registry, its state in the topic `_schemas` of any cluster.

`core` decides, without I/O. `kafka` reads and writes the topic and elects the writer. `node` connects the two, `web`
serves HTTP, and `process` runs a node until it is asked to stop.
"""
