"""Layer 2, lifetime: learners, the update they share, and the drivers that run whole lifetimes (Algorithm 2)."""
