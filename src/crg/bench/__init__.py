"""Experiments: a TOML file becomes an outline, the outline becomes runs, each kept when done."""
