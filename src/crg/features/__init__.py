"""Feature files, the store on disk, and what both must be like."""
