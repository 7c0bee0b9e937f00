"""What is wrong with a cluster, and what to do about it: `penstock doctor`.

observing     over the wire: what can be seen of a cluster from here, as one `Observations`
observations  what that is; nothing in it is judged
diagnosis     pure: observations in, findings out, each with its cause in words and what to do
metrics_pages the metrics endpoints of brokers, where they can be reached
"""
