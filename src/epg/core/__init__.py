"""Records, random keys, errors and the numerical environment: what every other package may import."""
