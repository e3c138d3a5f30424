"""From the pixels of a picture to those of its views: which part, resized how, mixed how."""
