"""A helm release in Kubernetes as a target: met as it runs, disturbed by calls to the API server, healed, left alone.

`hand` is the one place that changes anything; it looks at every object afresh and refuses what is not the release's.
"""
