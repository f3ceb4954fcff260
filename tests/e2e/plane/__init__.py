"""What the shared load promises, held against real engines, with real replicas on real planes."""
