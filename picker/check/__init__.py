"""
`picker check`: probes a deployment from outside, end to end, and says of each promise whether it is kept.

Here: what is checked and how it is told (`rows`), where the replicas are (`places`), a gateway's one request
(`extproc`), what the replicas' own words mean (`judging`, pure), and the run (`run`). It changes nothing: its requests
are marked as checks, and their bookings end with it.
"""
