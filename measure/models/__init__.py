"""The catalogue's models in torch: the twins of ``simcore/workload``, and the door for a user's own."""
