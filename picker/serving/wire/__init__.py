"""Messages on the wire: generated from protos/, committed, checked again in CI."""
