"""Benchmarks: what the promise costs over doing the same without one, as ratios measured in one run."""
