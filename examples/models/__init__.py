"""The models of the examples, in plain JAX: no module here knows of hlosharding."""
