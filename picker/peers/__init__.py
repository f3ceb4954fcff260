"""
What replicas tell one another when an operator asks: status and `why` of any replica, from any replica.

Here: the port that answers (`port`), what both sides prove themselves by (`credentials`), the asking side (`asking`),
the shapes of what is told (`shapes`), the pages made of all answers (`everywhere`). Read-only, and never asked on the
way of a pick. Not here: bookings, which replicas share through the state plane.
"""
