"""From the pixels of an image to those of its views: which part, resized how, mixed how."""
