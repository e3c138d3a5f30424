"""The service: sessions over HTTP, learnt in order, kept on disk, and a page to watch them."""
