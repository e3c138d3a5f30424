"""Images: sets of them, reading them, and making views: which part, resized how, mixed how."""
