"""A lifetime (Algorithm 2): the update that all learners share, and the two drivers that run whole lifetimes."""
