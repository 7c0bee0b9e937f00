"""Pure: metrics that clients send to brokers (KIP-714).

A broker asks clients for metrics by subscriptions, which are settings of the cluster. A client asks which metrics are
wanted of it, and how often (GetTelemetrySubscriptions), then sends them (PushTelemetry). Without a subscription that
selects it, it asks again every five minutes and sends nothing.

    subscriptions   what is wanted of which clients
    instances       the clients that asked: when they may send, and what they did wrong
    otlp            reads what they send: OpenTelemetry's MetricsData, in Protocol Buffers
    samples         what they sent last, for the broker's own metrics

Kafka asks for differences since the last push (delta temporality). We ask for totals, as Prometheus counts: a push that
is lost or repeated then changes nothing. Differences from clients that send them anyway are added up.
"""
