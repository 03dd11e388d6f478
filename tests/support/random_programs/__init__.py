"""Random programs with random shardings, a seed each."""
