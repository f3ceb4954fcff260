"""A local world: a simulated engine that behaves, and a cluster of real servers on loopback around it.

Here: `picker sim engine`, `picker up`, `picker demo`, the load. Not here: anything a replica in production needs.
"""
