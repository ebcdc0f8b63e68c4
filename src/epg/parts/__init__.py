"""Layer 1, parts: each can be read, used and tested alone."""
