"""Ops that only move elements or make them: slices, pads, reshapes, constants, iota, broadcasts."""
