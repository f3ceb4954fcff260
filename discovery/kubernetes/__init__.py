"""
Workers, peers and rules as the Kubernetes API tells them.

Here: what objects mean (`pools`, `pods`, `slices`, `objectives`, `imports`; pure), where kinds stand (`paths`), the way
to an API server (`api`), one kind of objects kept as the server has them (`mirror`), and the sources made of these
(`workers`, `peers`, `imported`, `objects`).

Not here: what a rewrite's rules do. Nothing outside this package imports the Kubernetes client, and it is imported when
the first call is made.
"""
