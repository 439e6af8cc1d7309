"""Collectives as they are measured: the logs of nccl-tests, read."""
