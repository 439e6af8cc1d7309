"""The catalogue: GPUs and links, each figure with its source, in TOML beside this file."""
