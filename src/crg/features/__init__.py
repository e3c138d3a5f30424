"""Features of encoded images: feature files, stores, and joining them."""
