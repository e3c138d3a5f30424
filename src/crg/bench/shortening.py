"""Former names of what ``crg.bench.rerun`` has."""

from crg.bench.rerun import SHORT as SHORT
from crg.bench.rerun import archive_file as shorten_file  # noqa: F401
