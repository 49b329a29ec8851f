"""Measures the limit, alkstore and its peers in one run on one machine: ``make bench``, and README.md says how."""
