"""
Dynamo workers that publish their own KV events on NATS: read in the replica, by the rules of the bridge.

Here: their encodings (`wire`), one rank's state and recovery (`rank`), and the source as a whole (`source`).
"""
