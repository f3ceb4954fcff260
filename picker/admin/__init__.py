"""
What an operator looks at: metrics, health, status, bookings, why.

Read-only but for the log level. Here: the catalogue of metrics (`metrics`), the pages (`server`), the last
decisions (`journal`). Not here: anything a pick depends on.
"""
