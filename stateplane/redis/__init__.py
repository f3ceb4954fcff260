"""The plane on Redis and Valkey: scripts, calls, feed."""
