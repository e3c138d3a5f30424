"""One paper, one file. A new method is a new module here, or a class registered from outside."""
