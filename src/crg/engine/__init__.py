"""Engine: independent runs, in this process, in several (``processes``), or on Ray (``ray``)."""
