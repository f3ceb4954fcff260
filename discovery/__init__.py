"""Who is there: peers (other replicas) and workers (engine endpoints).

Here: sources that yield the whole known set whenever it changes, and keep the last known set while their own source is
away. Not here: what a worker carries, or whether it should be picked.
"""
